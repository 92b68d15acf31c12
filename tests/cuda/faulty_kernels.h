// Kernels that are wrong, each in one way, and their right versions: what the simulator must catch.
#pragma once

#include "cuda/portable.h"

namespace zen::faulty {

constexpr int kThreads = 128;

// total = sum of values[0, kThreads). `waits` false leaves a barrier out.
template <bool waits>
__global__ void block_sum(const int* values, int* total) {
  ZEN_SHARED(int, shared, kThreads);
  const unsigned thread = threadIdx.x;
  shared[thread] = values[thread];
  if (waits) __syncthreads();
  if (thread != 0) return;
  unsigned sum = 0;  // of rubbish, too: must not overflow
  for (int at = 0; at < kThreads; ++at) sum += static_cast<unsigned>(shared[at]);
  *total = static_cast<int>(sum);
}

// Every block adds one. Not atomic: two blocks may read the same number.
template <bool atomically>
__global__ void count_blocks(int* total) {
  if (threadIdx.x != 0) return;
  if (atomically)
    atomicAdd(total, 1);
  else
    *total += 1;
}

// Only the lower half of the block reaches the first barrier.
__global__ inline void divergent_barrier(int* out) {
  if (threadIdx.x < kThreads / 2) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}

__global__ inline void barrier_after_return(int* out) {
  if (threadIdx.x == 7) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

// Lane 3 names itself alone; the others wait for all.
__global__ inline void disagreeing_masks(int* out) {
  const unsigned mask = threadIdx.x == 3 ? 1u << 3 | 1u : ~0u;
  out[threadIdx.x] = static_cast<int>(__ballot_sync(mask, true));
}

// Reads one element behind shared[kThreads]; with `dynamic`, behind the launch's shared bytes.
template <bool dynamic>
__global__ void shared_overrun(int* out) {
  ZEN_SHARED(int, fixed, kThreads);
  ZEN_DYNAMIC_SHARED(int, sized);
  int* shared = dynamic ? sized : fixed;
  shared[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = shared[threadIdx.x + 1];
}

// out[i] = in[i] + 1
__global__ inline void add_one(const int* in, int* out, int count) {
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at < count) out[at] = in[at] + 1;
}

}  // namespace zen::faulty
