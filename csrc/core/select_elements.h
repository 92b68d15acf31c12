// select() for a placement of single elements: Algorithm 1 of the ZEN paper finds each owner's
// non-zeros; they are then put in the order of the owner's list I_j, which messages need.
#pragma once

#include "core/buffer.h"
#include "core/gradient.h"
#include "core/hierarchical_hash.h"
#include "core/placement.h"
#include "core/selection.h"

namespace zen {

// As select(), on one thread. REQUIRES: the placement's kind is hashed_elements, the gradient has
// its size, and range lies in it.
Selection select_elements(const Gradient& gradient, const Placement& placement, WordRange range,
                          const Allocate& allocate);

// The parameters of Algorithm 1 for so many non-zeros of a gradient.
HierarchicalHash element_hash(const Placement& placement, uint64_t nonzeros);

}  // namespace zen
