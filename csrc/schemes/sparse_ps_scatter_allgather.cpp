// sparse_ps_broadcast by the other classic broadcast: each server scatters its sum over all ranks,
// which then pass the pieces on to one another. A large sum costs its server twice its bytes, as it
// costs everybody else, where a binomial tree costs the server ceil(log2 n) times.
#include "schemes/list.h"
#include "schemes/push_pull.h"

namespace zen {

Scheme sparse_ps_scatter_allgather() {
  return {.name = "sparse_ps_scatter_allgather",
          .has_placement = true,
          .placement = PlacementKind::ranges,
          .narrows_values = true,
          .travel = Travel::push_scatter,
          .push = Choice::coo,
          .pull = Choice::coo,
          .make = [](const Context& context) {
            return make_push_pull(
                context, {.push = Choice::coo, .pull = Choice::coo, .pattern = scatter_and_gather});
          }};
}

}  // namespace zen
