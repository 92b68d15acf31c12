// ZEN's balanced parallelism: hashing spreads every rank's non-zeros evenly over the owners,
// however skewed the gradient is. The unit is a word of 64 elements, and each message takes the
// encoding that is smallest for it.
#include "schemes/list.h"
#include "schemes/push_pull.h"

namespace zen {

Scheme balanced_parallelism() {
  return {.name = "balanced_parallelism",
          .has_placement = true,
          .placement = PlacementKind::hashed,
          .packs_values = true,
          .narrows_values = true,
          .travel = Travel::push_pull,
          .push = Choice::cheapest,
          .pull = Choice::cheapest,
          .make = [](const Context& context) {
            const EncodeOptions cheapest{Choice::cheapest, context.pack_values};
            return make_push_pull(context,
                                  {.push = cheapest, .pull = cheapest, .pattern = point_to_point});
          }};
}

}  // namespace zen
