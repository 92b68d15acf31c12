// SparCML (SC '19): recursive doubling over index-value pairs, which turns to dense messages where
// those are smaller. The variant never does, as the ZEN paper's figures have it.
#include "schemes/list.h"
#include "schemes/recursive_doubling.h"

namespace zen {

Scheme sparcml() {
  return {.name = "sparcml",
          .has_placement = true,
          .placement = PlacementKind::whole,
          .travel = Travel::doubling,
          .push = Choice::coo_or_dense,
          .pull = Choice::coo_or_dense,
          .make = [](const Context& context) {
            return make_recursive_doubling(context, Choice::coo_or_dense);
          }};
}

Scheme sparcml_coo() {
  return {
      .name = "sparcml_coo",
      .has_placement = true,
      .placement = PlacementKind::whole,
      .travel = Travel::doubling,
      .push = Choice::coo,
      .pull = Choice::coo,
      .make = [](const Context& context) { return make_recursive_doubling(context, Choice::coo); }};
}

}  // namespace zen
