// Memory of the CUDA runtime as Buffers, for users that bring no allocator of their own. A program
// with a caching allocator (PyTorch) passes that to CudaDevice instead: these ask the driver.
#pragma once

#include "core/buffer.h"
#include "cuda/portable.h"

namespace zen::cuda {

// Device memory in the order of `stream`: what a Buffer held is reused only by later work on it.
// The stream outlives every Buffer.
Allocate stream_memory(cudaStream_t stream);

// Page-locked host memory.
Allocate pinned_memory();

}  // namespace zen::cuda
