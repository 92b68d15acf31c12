#include "cuda/hash_elements.h"

#include "core/murmur3.h"
#include "core/partition_hash.h"
#include "cuda/error.h"
#include "cuda/tile.cuh"

namespace zen::cuda {

namespace {

__global__ void __launch_bounds__(kTileSlots) list_tile(SelectJob job, uint32_t* indices) {
  ZEN_SHARED(uint64_t, scratch, kWarps);
  const uint64_t tile = blockIdx.x;
  const uint64_t own_mask = mask_of_thread(job.table, tile);
  const uint64_t own_offset = offset_of_thread(job.table, tile, own_mask, scratch);
  for_each_slot(tile, own_mask, own_offset, [&](uint64_t slot, uint64_t mask, uint64_t offset) {
    for_own_elements([&](unsigned elem) {
      if (lists(mask, elem))
        indices[offset + rank_of(mask, elem)] =
            static_cast<uint32_t>(job.map.word(slot) * kWordElems + elem);
    });
  });
}

// Lines 6 to 16 without the serial write: whether one of h1 ... hk gave a free slot.
__device__ bool claims_parallel_slot(const HashJob& job, uint32_t* row, uint32_t index) {
  for (int hash = 0; hash < job.hashes; ++hash) {
    uint32_t* slot = row + scale_to(murmur3_x86_32(index, job.seeds[hash]), job.r1);
    if (atomicCAS(slot, 0u, index + 1) == 0) return true;
  }
  return false;
}

__global__ void __launch_bounds__(kTileSlots) insert_index(HashJob job) {
  const uint64_t at = uint64_t{blockIdx.x} * kTileSlots + threadIdx.x;
  if (at >= job.count) return;
  const uint32_t index = job.indices[at];
  const uint64_t p = scale_to(murmur3_x86_32(index, job.h0_seed), job.partitions);
  uint32_t* row = job.memory + p * (job.r1 + job.r2);
  if (claims_parallel_slot(job, row, index)) return;
  const uint64_t place =
      atomicAdd(reinterpret_cast<unsigned long long*>(job.appended + p), 1ull);  // lines 8 to 11
  if (place < job.r2) row[job.r1 + place] = index + 1;
}

__global__ void __launch_bounds__(kTileSlots) note_slot(HashJob job) {
  const uint64_t at = uint64_t{blockIdx.x} * kTileSlots + threadIdx.x;
  if (at >= job.partitions * (job.r1 + job.r2)) return;
  const uint32_t stored = job.memory[at];
  if (stored == 0) return;
  const uint64_t bit = stored - 1 - job.first_element;
  atomic_or(job.listed + bit / 64, uint64_t{1} << bit % 64);
}

// A warp reads the 64 members of a slot together.
__global__ void __launch_bounds__(kTileSlots)
    mark_members(const uint64_t* listed, uint64_t first_element, const SelectJob* jobs,
                 unsigned count) {
  ZEN_SHARED(uint64_t, scratch, kWarps);
  const Place place = place_of_block(count);
  const SelectJob& job = jobs[place.job];
  if (place.tile >= job.table.tiles()) return;
  const unsigned lane = lane_of_thread();
  const uint64_t first = place.tile * kTileSlots + threadIdx.x / kWarpLanes * kWarpLanes;
  const auto is_listed = [&](uint64_t slot, unsigned elem) {
    if (elem >= job.map.slot_elements(slot)) return false;
    const uint64_t bit = job.map.element(slot, elem) - first_element;
    return (listed[bit / 64] >> bit % 64 & 1) != 0;
  };
  uint64_t own_mask = 0;
  for (unsigned at = 0; at < kWarpLanes && first + at < job.map.slots; ++at) {
    const unsigned low = __ballot_sync(kAllLanes, is_listed(first + at, lane));
    const unsigned high = __ballot_sync(kAllLanes, is_listed(first + at, lane + kWarpLanes));
    if (lane == at) own_mask = low | uint64_t{high} << kWarpLanes;
  }
  write_tile(job.table, job.map, place.tile, own_mask, scratch);
}

dim3 grid_of(uint64_t threads) {
  return dim3(static_cast<unsigned>((threads + kTileSlots - 1) / kTileSlots));
}

}  // namespace

void hash_list(const SelectJob& job, uint32_t* indices, cudaStream_t stream) {
  if (job.table.slots == 0) return;
  launch(list_tile, dim3(static_cast<unsigned>(job.table.tiles())), dim3(kTileSlots), 0, stream,
         job, indices);
  check_launch("list_tile");
}

void hash_insert(const HashJob& job, cudaStream_t stream) {
  if (job.count == 0) return;
  launch(insert_index, grid_of(job.count), dim3(kTileSlots), 0, stream, job);
  check_launch("insert_index");
}

void hash_note(const HashJob& job, cudaStream_t stream) {
  if (job.count == 0) return;
  launch(note_slot, grid_of(job.partitions * (job.r1 + job.r2)), dim3(kTileSlots), 0, stream, job);
  check_launch("note_slot");
}

void hash_mark(const uint64_t* listed, uint64_t first_element, const SelectJob* jobs,
               unsigned count, uint64_t most_tiles, cudaStream_t stream) {
  if (most_tiles == 0) return;
  launch(mark_members, dim3(static_cast<unsigned>(most_tiles * count)), dim3(kTileSlots), 0, stream,
         listed, first_element, jobs, count);
  check_launch("mark_members");
}

}  // namespace zen::cuda
