// Adds whole arrays of elements: the one sum that looks at no index.
#pragma once

#include <span>

#include "core/buffer.h"
#include "core/dtype.h"

namespace zen {

// Throws InvalidArgument unless all arrays have the result's length.
void check_lengths(std::span<const Buffer> arrays, const Buffer& result);

// result[i] = (arrays[0][i] + arrays[1][i] + ...) / divisor, added and divided in float32 in the
// order given and rounded once. A sum of zeros is +0.0. The result may be one of the arrays. Checks
// their lengths.
void dense_sum(std::span<const Buffer> arrays, DType dtype, float divisor, const Buffer& result);

}  // namespace zen
