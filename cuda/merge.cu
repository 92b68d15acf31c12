#include "cuda/merge.h"

#include "cuda/error.h"
#include "cuda/tile.cuh"
#include "cuda/values.cuh"

namespace zen::cuda {

namespace {

__global__ void __launch_bounds__(kTileSlots) unite_tile(MergeJob job) {
  ZEN_SHARED(uint64_t, scratch, kWarps);
  const uint64_t tile = blockIdx.x;
  uint64_t mask = 0;
  if (*job.inputs[0].any_bad == 0)
    for (unsigned input = 0; input < job.count; ++input)
      mask |= mask_of_thread(job.inputs[input].table, tile);
  write_tile(job.table, job.map, tile, mask, scratch);
}

// The lane's elements of one slot: added in the order of the messages, which may differ in dtype,
// since partial sums travel as float32.
struct Sums {
  // The number that changes no other when it is added.
  float low = -0.0f, high = -0.0f;

  __device__ void add(const OpenJob& input, uint64_t slot) {
    const uint64_t mask = input.table.masks[slot];
    if (mask == 0) return;
    const uint64_t offset = input.table.offsets[slot];
    const unsigned lane = lane_of_thread();
    if (lists(mask, lane)) low += value_at(input, offset + rank_of(mask, lane));
    if (lists(mask, lane + kWarpLanes))
      high += value_at(input, offset + rank_of(mask, lane + kWarpLanes));
  }
};

template <class T>
__global__ void __launch_bounds__(kTileSlots, 4) add_tile(MergeJob job) {
  ZEN_SHARED(uint64_t, scratch, kWarps);
  if (*job.inputs[0].any_bad != 0) return;
  const uint64_t tile = blockIdx.x, slot = tile * kTileSlots + threadIdx.x;
  const uint64_t own_mask = mask_of_thread(job.table, tile);
  const uint64_t own_offset = offset_of_thread(job.table, tile, own_mask, scratch);
  if (slot < job.table.slots) job.table.offsets[slot] = own_offset;
  T* values = reinterpret_cast<T*>(job.values);
  for_each_slot(tile, own_mask, own_offset, [&](uint64_t at, uint64_t mask, uint64_t offset) {
    Sums sums;
    for (unsigned input = 0; input < job.count; ++input) sums.add(job.inputs[input], at);
    for_own_elements([&](unsigned elem) {
      const float sum = elem < kWarpLanes ? sums.low : sums.high;
      if (lists(mask, elem))
        values[offset + rank_of(mask, elem)] = from_float<T>(sum / job.divisor);
    });
  });
}

}  // namespace

void merge_unite(const MergeJob& job, cudaStream_t stream) {
  if (job.table.slots == 0) return;
  launch(unite_tile, dim3(static_cast<unsigned>(job.table.tiles())), dim3(kTileSlots), 0, stream,
         job);
  check_launch("unite_tile");
}

void merge_add(DType dtype, const MergeJob& job, cudaStream_t stream) {
  if (job.table.slots == 0) return;
  with_type(dtype, [&]<class T>(T) {
    launch(add_tile<T>, dim3(static_cast<unsigned>(job.table.tiles())), dim3(kTileSlots), 0, stream,
           job);
  });
  check_launch("add_tile");
}

}  // namespace zen::cuda
