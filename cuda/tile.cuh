// What the kernels have in common: a block of kTileSlots threads handles a tile of as many slots,
// a thread a slot where masks are concerned and a warp a slot where values are.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/portable.h"
#include "cuda/slot_table.h"

namespace zen::cuda {

constexpr unsigned kWarpLanes = 32;
constexpr unsigned kAllLanes = ~0u;
constexpr unsigned kWarps = kTileSlots / kWarpLanes;

// The unsigned integer as wide as a value: values are moved, not computed with, by most kernels.
template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;

// A launch covers `jobs` shards; neighbouring blocks work on the same tile of different jobs, which
// for dealt words is the same part of the gradient.
struct Place {
  unsigned job;
  uint64_t tile;
};

__device__ inline Place place_of_block(unsigned jobs) {
  return {blockIdx.x % jobs, blockIdx.x / jobs};
}

__device__ inline unsigned lane_of_thread() {
  return threadIdx.x % kWarpLanes;
}

__device__ inline uint64_t popcount(uint64_t x) {
  return static_cast<uint64_t>(__popcll(x));
}

__device__ inline void atomic_or(uint64_t* word, uint64_t bits) {
  atomicOr(reinterpret_cast<unsigned long long*>(word), static_cast<unsigned long long>(bits));
}

struct Scanned {
  uint64_t before, total;
};

// Sums `value` over the threads before this one, and over the block. Every thread of the block
// calls it; `scratch` has kWarps words of shared memory, free again when it returns.
__device__ inline Scanned block_scan(uint64_t value, uint64_t* scratch) {
  const unsigned lane = lane_of_thread(), warp = threadIdx.x / kWarpLanes;
  uint64_t sum = value;
  for (unsigned step = 1; step < kWarpLanes; step *= 2) {
    const uint64_t other = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == kWarpLanes - 1) scratch[warp] = sum;
  __syncthreads();
  Scanned result{sum - value, 0};
  for (unsigned w = 0; w < kWarps; ++w) {
    if (w < warp) result.before += scratch[w];
    result.total += scratch[w];
  }
  __syncthreads();
  return result;
}

// The four counts of a slot, or of up to a tile of them, in one word: at most 16384 fits 16 bits.
__device__ inline uint64_t pack_counts(uint64_t values, uint64_t present, uint64_t full,
                                       uint64_t block_elements) {
  return values | present << 16 | full << 32 | block_elements << 48;
}

__device__ inline uint64_t unpack_count(uint64_t packed, int which) {
  return packed >> 16 * which & 0xffff;
}

// Counts of the slot that this thread stands for. Every lane of the warp calls it.
__device__ inline uint64_t counts_of_slot(const ShardMap& map, uint64_t slot, uint64_t mask) {
  const unsigned present = __ballot_sync(kAllLanes, mask != 0);
  if (slot >= map.slots) return 0;
  const bool in_block = (present >> (lane_of_thread() & ~3u) & 0xf) != 0;  // 4 slots a block
  return pack_counts(popcount(mask), mask != 0, mask == map.full_mask(slot),
                     in_block ? map.slot_elements(slot) : 0);
}

// Writes the masks of a tile and its counts; a mask is 0 where the shard has no slot.
__device__ inline void write_tile(const SlotTable& table, const ShardMap& map, uint64_t tile,
                                  uint64_t mask, uint64_t* scratch) {
  const uint64_t slot = tile * kTileSlots + threadIdx.x;
  if (slot < table.slots) table.masks[slot] = mask;
  const uint64_t total = block_scan(counts_of_slot(map, slot, mask), scratch).total;
  if (threadIdx.x < kCounts)
    table.count(static_cast<int>(threadIdx.x))[tile] =
        unpack_count(total, static_cast<int>(threadIdx.x));
}

__device__ inline uint64_t mask_of_thread(const SlotTable& table, uint64_t tile) {
  const uint64_t slot = tile * kTileSlots + threadIdx.x;
  return slot < table.slots ? table.masks[slot] : 0;
}

// Where this thread's slot has its first value, counts having been scanned.
__device__ inline uint64_t offset_of_thread(const SlotTable& table, uint64_t tile, uint64_t mask,
                                            uint64_t* scratch) {
  return table.count(kValues)[tile] + block_scan(popcount(mask), scratch).before;
}

// Calls f(slot, mask, offset), with all lanes together, for the slots of the warp whose `mask` is
// not 0. Every lane brings the mask and offset of its own slot.
template <class F>
__device__ void for_each_slot(uint64_t tile, uint64_t mask, uint64_t offset, F f) {
  const uint64_t first = tile * kTileSlots + threadIdx.x / kWarpLanes * kWarpLanes;
  for (unsigned rest = __ballot_sync(kAllLanes, mask != 0); rest != 0; rest &= rest - 1) {
    const int source = __ffs(static_cast<int>(rest)) - 1;
    f(first + static_cast<unsigned>(source), __shfl_sync(kAllLanes, mask, source),
      __shfl_sync(kAllLanes, offset, source));
  }
}

// Calls f(elem) for this lane's two elements of a word.
template <class F>
__device__ void for_own_elements(F f) {
  f(lane_of_thread());
  f(lane_of_thread() + kWarpLanes);
}

__device__ inline bool lists(uint64_t mask, unsigned elem) {
  return (mask >> elem & 1) != 0;
}

// How many listed elements come before `elem`.
__device__ inline uint64_t rank_of(uint64_t mask, unsigned elem) {
  return popcount(mask & low_bits(elem));
}

// The predicates of a lane's two elements, as one mask of the word's 64. Every lane of the warp
// calls it.
__device__ inline uint64_t ballot_of_two(bool low, bool high) {
  const unsigned first = __ballot_sync(kAllLanes, low), second = __ballot_sync(kAllLanes, high);
  return first | uint64_t{second} << kWarpLanes;
}

}  // namespace zen::cuda
