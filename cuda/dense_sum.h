// dense_sum() of csrc/core on a GPU: whole arrays added up, element by element.
//
// Expected bytes for n arrays of m elements of b bytes: n * m * b read, m * b written.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "cuda/portable.h"

namespace zen::cuda {

// `arrays` is a table on the device of `count` arrays on the device. The result may be one of them.
void dense_sum(DType dtype, const std::byte* const* arrays, unsigned count, uint64_t elements,
               float divisor, std::byte* result, cudaStream_t stream);

}  // namespace zen::cuda
