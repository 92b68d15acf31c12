// Rounding selected float32 values to a narrower type, as csrc/core's narrow_values() does.
//
// Expected bytes for nnz values: 4 * nnz read, 2 * nnz written.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "cuda/portable.h"

namespace zen::cuda {

struct NarrowJob {
  const std::byte* wide = nullptr;
  std::byte* narrow = nullptr;
  uint64_t values = 0;
};

// Writes jobs[0, count), of which none has more than `most_values`, as values of `dtype`; `jobs` is
// device memory.
void narrow(DType dtype, const NarrowJob* jobs, unsigned count, uint64_t most_values,
            cudaStream_t stream);

}  // namespace zen::cuda
