// OmniReduce (SIGCOMM '21): aggregator j owns the j-th range and adds whole blocks of 256 elements;
// blocks without a non-zero stay at home, the others travel with their zeros and without indices.
// Here every rank is an aggregator, and all blocks of a range travel in one message each way.
#include "schemes/list.h"
#include "schemes/push_pull.h"

namespace zen {

Scheme omnireduce() {
  return {.name = "omnireduce",
          .has_placement = true,
          .placement = PlacementKind::ranges,
          .narrows_values = true,
          .travel = Travel::push_pull,
          .push = Choice::blocks,
          .pull = Choice::blocks,
          .make = [](const Context& context) {
            return make_push_pull(
                context,
                {.push = Choice::blocks, .pull = Choice::blocks, .pattern = point_to_point});
          }};
}

}  // namespace zen
