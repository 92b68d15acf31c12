// Writing opened messages into the gradient: exactly the listed elements.
//
// Expected bytes for nnz values of b bytes in p words of S slots: 16 * S and nnz * b read, nnz * b
// written in 32-byte sectors, so up to p * 64 * b.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "cuda/open.h"
#include "cuda/portable.h"

namespace zen::cuda {

// Writes nothing if any message of the batch is bad. REQUIRES: no two shards have a word in common;
// the messages have values of `dtype`, or narrower ones if that is float32.
void decode_write(DType dtype, const OpenJob* jobs, unsigned count, uint64_t most_tiles,
                  std::byte* gradient, cudaStream_t stream);

}  // namespace zen::cuda
