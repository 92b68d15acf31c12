// Writing a message's elements into the gradient.
#pragma once

#include "core/codec.h"
#include "core/cpu_features.h"
#include "core/gradient.h"
#include "core/placement.h"

namespace zen {

// Writes exactly the listed elements; the other elements of a touched word keep their bits. Throws
// InvalidArgument if the gradient's dtype or size is not the message's. REQUIRES: the message was
// opened against `shard`; nobody else uses the shard's words of the gradient meanwhile.
void decode_write(const OpenMessage& message, const Shard& shard, const Gradient& gradient,
                  Isa isa = preferred_isa());

}  // namespace zen
