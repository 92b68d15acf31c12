// Hierarchical centralisation, ZEN's name for recursive doubling, with the smallest encoding for
// each message: best when the ranks hardly share non-zeros, because then no scheme can save by
// adding early, and this one has the fewest steps.
#include "schemes/list.h"
#include "schemes/recursive_doubling.h"

namespace zen {

Scheme hierarchical() {
  return {.name = "hierarchical",
          .has_placement = true,
          .placement = PlacementKind::whole,
          .packs_values = true,
          .travel = Travel::doubling,
          .push = Choice::cheapest,
          .pull = Choice::cheapest,
          .make = [](const Context& context) {
            return make_recursive_doubling(context, {Choice::cheapest, context.pack_values});
          }};
}

}  // namespace zen
