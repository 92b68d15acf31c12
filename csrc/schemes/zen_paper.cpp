// The ZEN paper's own scheme: every element is hashed to its server by Algorithm 1, the push lists
// index-value pairs, and the pull is the hash bitmap of Algorithm 2, which is the encoding `bitmap`
// over a server's list of elements. The variant pulls pairs too, as the paper's figures compare.
#include "schemes/list.h"
#include "schemes/push_pull.h"

namespace zen {

Scheme zen_paper() {
  return {.name = "zen_paper",
          .has_placement = true,
          .placement = PlacementKind::hashed_elements,
          .narrows_values = true,
          .travel = Travel::push_pull,
          .push = Choice::coo,
          .pull = Choice::bitmap,
          .make = [](const Context& context) {
            return make_push_pull(
                context, {.push = Choice::coo, .pull = Choice::bitmap, .pattern = point_to_point});
          }};
}

Scheme zen_paper_coo_pull() {
  return {.name = "zen_paper_coo_pull",
          .has_placement = true,
          .placement = PlacementKind::hashed_elements,
          .narrows_values = true,
          .travel = Travel::push_pull,
          .push = Choice::coo,
          .pull = Choice::coo,
          .make = [](const Context& context) {
            return make_push_pull(
                context, {.push = Choice::coo, .pull = Choice::coo, .pattern = point_to_point});
          }};
}

}  // namespace zen
