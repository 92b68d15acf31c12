// How kernels find a message bad, and hear of it from each other.
#pragma once

#include "cuda/open.h"
#include "cuda/tile.cuh"

namespace zen::cuda {

__device__ inline void reject(const OpenJob& job) {
  atomic_or(job.bad, 1);
  atomic_or(job.any_bad, 1);
}

// A job whose header was fit to be read. The same for the whole block.
__device__ inline bool is_readable(const OpenJob& job) {
  return *job.bad == 0;
}

// The same where other blocks may be rejecting the message: one thread looks for all of the block.
__device__ inline bool is_still_readable(const OpenJob& job, uint64_t* shared) {
  if (threadIdx.x == 0)
    *shared = atomicOr(reinterpret_cast<unsigned long long*>(job.bad), 0ull) == 0;
  __syncthreads();
  return *shared != 0;
}

}  // namespace zen::cuda
