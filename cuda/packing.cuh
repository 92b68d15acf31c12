// What the kernels that pack and unpack values have in common. A block of threads handles a chunk
// of up to 64 blocks of 64 values, a warp one block of values after the other, a lane two values.
#pragma once

#include "cuda/packing_tables.h"
#include "cuda/tile.cuh"

namespace zen::cuda {

using packing::BodyLayout;
using packing::Code;
using packing::kBlockValues;
using packing::kChunkBlocks;
using packing::kChunkValues;
using packing::kEntryBytes;
using packing::kLevels;
using packing::kRawChunk;
using packing::Past;

template <class T>
struct Parts {
  static constexpr packing::Split split = packing::split_of(DTypeOf<T>::value);
  static constexpr int sign_shift = split.mantissa_bits + split.exponent_bits;

  static __device__ uint32_t load(const std::byte* values, uint64_t at) {
    return reinterpret_cast<const BitsOf<T>*>(values)[at];
  }
  static __device__ void store(std::byte* values, uint64_t at, uint32_t bits) {
    reinterpret_cast<BitsOf<T>*>(values)[at] = static_cast<BitsOf<T>>(bits);
  }
  static __device__ uint32_t exponent(uint32_t bits) {
    return bits >> split.mantissa_bits & split.exponent_mask();
  }
  static __device__ uint32_t fraction(uint32_t bits) {
    return bits >> sign_shift << split.mantissa_bits | (bits & split.mantissa_mask());
  }
  static __device__ uint32_t join(uint32_t exponent, uint32_t fraction) {
    return fraction >> split.mantissa_bits << sign_shift |
           (exponent & split.exponent_mask()) << split.mantissa_bits |
           (fraction & split.mantissa_mask());
  }
};

// A lane's two values of a block, elements `lane` and `lane` + 32.
struct Two {
  uint32_t low, high;
};

// Counts of a chunk's blocks for each level, in shared memory.
constexpr unsigned kLevelStride = kChunkBlocks + 1;
constexpr unsigned kLevelCounts = kLevels * kLevelStride;

// Turns a level's counts of blocks into those of the blocks before, with the total in the last
// place. Every thread of the block calls it.
__device__ inline void sum_blocks(uint32_t* counts, unsigned first_level, unsigned end_level,
                                  unsigned blocks) {
  __syncthreads();
  const unsigned level = first_level + threadIdx.x;
  if (level < end_level) {
    uint32_t* own = counts + level * kLevelStride;
    uint32_t sum = 0;
    for (unsigned block = 0; block < blocks; ++block) {
      const uint32_t count = own[block];
      own[block] = sum;
      sum += count;
    }
    own[kChunkBlocks] = sum;
  }
  __syncthreads();
}

// By all threads of the block.
__device__ inline void copy_bytes(std::byte* to, const std::byte* from, uint64_t bytes) {
  for (uint64_t at = threadIdx.x; at < bytes; at += kTileSlots) to[at] = from[at];
}

}  // namespace zen::cuda
