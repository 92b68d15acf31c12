// A sparse parameter server: server j owns the j-th range, takes the ranks' non-zeros of it as
// index-value pairs and sends every rank its sum, point to point. Skew hurts: the server of the
// fullest range sends and receives most.
#include "schemes/list.h"
#include "schemes/push_pull.h"

namespace zen {

Scheme sparse_ps() {
  return {.name = "sparse_ps",
          .has_placement = true,
          .placement = PlacementKind::ranges,
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
