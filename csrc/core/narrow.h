// Values on the wire that are narrower than the gradient's: half the bytes, for a rounding.
#pragma once

#include "core/buffer.h"
#include "core/codec.h"
#include "core/cpu_features.h"
#include "core/dtype.h"
#include "core/selection.h"

namespace zen {

// Rounds the values to `dtype`, to nearest, ties to even, in place. What is listed stays listed,
// also if it rounds to zero; what is beyond the type's range becomes infinite. Nothing to do if the
// values have the type already. Throws InvalidArgument if they are neither float32 nor of the type.
void narrow_values(ShardSelection& selection, DType dtype, Isa isa = preferred_isa());

// The same message with float32 values. Exact.
void widen_values(OpenMessage& message, const Allocate& allocate);

}  // namespace zen
