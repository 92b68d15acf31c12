// sparse_ps, but each server's sum spreads along a binomial tree, so that the server of the fullest
// range sends it ceil(log2 n) times instead of n - 1.
#include "schemes/list.h"
#include "schemes/push_pull.h"

namespace zen {

Scheme sparse_ps_broadcast() {
  return {.name = "sparse_ps_broadcast",
          .has_placement = true,
          .placement = PlacementKind::ranges,
          .narrows_values = true,
          .travel = Travel::push_broadcast,
          .push = Choice::coo,
          .pull = Choice::coo,
          .make = [](const Context& context) {
            return make_push_pull(
                context, {.push = Choice::coo, .pull = Choice::coo, .pattern = binomial_trees});
          }};
}

}  // namespace zen
