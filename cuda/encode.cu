#include "cuda/encode.h"

#include <algorithm>

#include "cuda/elias_fano.cuh"
#include "cuda/error.h"
#include "cuda/tile.cuh"
#include "cuda/words_kinds.h"

namespace zen::cuda {

namespace {

__device__ uint64_t* index_of(const EncodeJob& job) {
  return reinterpret_cast<uint64_t*>(job.message + job.index_offset);
}

// Every job has at least one block, since a message without slots has a header, too.
__global__ void __launch_bounds__(kTileSlots)
    write_envelope(const EncodeJob* jobs, unsigned count) {
  const Place place = place_of_block(count);
  const EncodeJob& job = jobs[place.job];
  const uint64_t tiles = job.table.tiles() == 0 ? 1 : job.table.tiles();
  if (place.tile >= tiles) return;
  for (uint64_t word = place.tile * kTileSlots + threadIdx.x; word < job.index_words;
       word += tiles * kTileSlots)
    index_of(job)[word] = 0;
  if (place.tile != 0) return;
  if (threadIdx.x < kHeaderBytes) job.message[threadIdx.x] = job.header[threadIdx.x];
  const uint64_t padding = kHeaderBytes + job.value_bytes + threadIdx.x;
  if (job.index_words != 0 && padding < job.index_offset) job.message[padding] = std::byte{0};
}

// Where the values of a slot go if its whole block is sent: only the last slot is short.
template <class Bits>
__global__ void __launch_bounds__(kTileSlots) spread_tile(const EncodeJob* jobs, unsigned count) {
  ZEN_SHARED(uint64_t, scratch, kWarps);
  const Place place = place_of_block(count);
  const EncodeJob& job = jobs[place.job];
  if (place.tile >= job.table.tiles() || !job.spreads()) return;
  const uint64_t slot = place.tile * kTileSlots + threadIdx.x;
  const uint64_t own_mask = mask_of_thread(job.table, place.tile);
  const uint64_t counts = counts_of_slot(job.map, slot, own_mask);
  const bool sent = slot < job.map.slots &&
                    (job.encoding == Encoding::dense || unpack_count(counts, kBlockElements) != 0);
  const uint64_t before = block_scan(counts, scratch).before;
  const uint64_t own_target =
      job.encoding == Encoding::dense
          ? slot * kWordElems
          : job.table.count(kBlockElements)[place.tile] + unpack_count(before, kBlockElements);
  const uint64_t own_source = job.table.count(kValues)[place.tile] + unpack_count(before, kValues);
  const Bits* values = reinterpret_cast<const Bits*>(job.values);
  Bits* out = reinterpret_cast<Bits*>(job.message + kHeaderBytes);
  const uint64_t first = slot - lane_of_thread();
  for (unsigned rest = __ballot_sync(kAllLanes, sent); rest != 0; rest &= rest - 1) {
    const int source = __ffs(static_cast<int>(rest)) - 1;
    const uint64_t mask = __shfl_sync(kAllLanes, own_mask, source);
    const uint64_t from = __shfl_sync(kAllLanes, own_source, source);
    const uint64_t to = __shfl_sync(kAllLanes, own_target, source);
    const uint64_t elements = job.map.slot_elements(first + static_cast<unsigned>(source));
    for_own_elements([&](unsigned elem) {
      if (elem < elements)
        out[to + elem] = lists(mask, elem) ? values[from + rank_of(mask, elem)] : Bits{0};
    });
  }
}

__device__ void write_words(const EncodeJob& job, uint64_t tile, uint64_t mask, uint64_t* scratch) {
  const uint64_t slot = tile * kTileSlots + threadIdx.x;
  const uint64_t counts = counts_of_slot(job.map, slot, mask);
  const uint64_t before = block_scan(counts, scratch).before;
  const uint64_t present = job.table.count(kPresent)[tile] + unpack_count(before, kPresent);
  const uint64_t full = job.table.count(kFull)[tile] + unpack_count(before, kFull);
  const WordsKinds kinds = words_kinds(job.flags);
  uint64_t* masks = index_of(job) + kinds.presence_words(job.list, job.map.slots);
  const unsigned ballot = __ballot_sync(kAllLanes, mask != 0);
  if (kinds.presence == WordsKinds::kBitmap && lane_of_thread() == 0 && slot < job.map.slots)
    reinterpret_cast<uint32_t*>(index_of(job))[slot / kWarpLanes] = ballot;
  if (mask == 0) return;
  if (kinds.presence == WordsKinds::kList) write_number(job.list, index_of(job), present, slot);
  if (kinds.full == WordsKinds::kNoFlags) masks[present] = mask;
  if (kinds.full != WordsKinds::kFlags) return;
  if (unpack_count(counts, kFull) != 0)
    atomic_or(masks + present / 64, uint64_t{1} << present % 64);
  else
    masks[words_for_bits(job.table.count(kPresent)[job.table.tiles()]) + present - full] = mask;
}

// Calls f(position, index) for the listed elements of a tile.
template <class F>
__device__ void for_each_position(const EncodeJob& job, uint64_t tile, uint64_t own_mask,
                                  uint64_t* scratch, F f) {
  const uint64_t own_offset = offset_of_thread(job.table, tile, own_mask, scratch);
  for_each_slot(tile, own_mask, own_offset, [&](uint64_t slot, uint64_t mask, uint64_t offset) {
    for_own_elements([&](unsigned elem) {
      if (lists(mask, elem)) f(slot * kWordElems + elem, offset + rank_of(mask, elem));
    });
  });
}

__device__ void write_coo(const EncodeJob& job, uint64_t tile, uint64_t mask, uint64_t* scratch) {
  const bool narrow = job.map.elements <= uint64_t{1} << 32;
  for_each_position(job, tile, mask, scratch, [&](uint64_t position, uint64_t index) {
    if (narrow)
      reinterpret_cast<uint32_t*>(index_of(job))[index] = static_cast<uint32_t>(position);
    else
      index_of(job)[index] = position;
  });
}

// A tile is 64 blocks of 4 slots: one word of their bits.
__device__ void write_block_bits(const EncodeJob& job, uint64_t tile, uint64_t mask) {
  const unsigned present = __ballot_sync(kAllLanes, mask != 0), lane = lane_of_thread();
  const bool in_block = lane % 4 == 0 && (present >> lane & 0xf) != 0;
  if (in_block) atomic_or(index_of(job) + tile, uint64_t{1} << threadIdx.x / 4);
}

__global__ void __launch_bounds__(kTileSlots) write_index(const EncodeJob* jobs, unsigned count) {
  ZEN_SHARED(uint64_t, scratch, kWarps);
  const Place place = place_of_block(count);
  const EncodeJob& job = jobs[place.job];
  if (place.tile >= job.table.tiles()) return;
  const uint64_t slot = place.tile * kTileSlots + threadIdx.x;
  const uint64_t mask = mask_of_thread(job.table, place.tile);
  switch (job.encoding) {
    case Encoding::words:
      return write_words(job, place.tile, mask, scratch);
    case Encoding::positions:
      return for_each_position(job, place.tile, mask, scratch,
                               [&](uint64_t position, uint64_t index) {
                                 write_number(job.list, index_of(job), index, position);
                               });
    case Encoding::bitmap:
      if (slot < job.map.slots) index_of(job)[slot] = mask;
      return;
    case Encoding::coo:
      return write_coo(job, place.tile, mask, scratch);
    case Encoding::blocks:
      return write_block_bits(job, place.tile, mask);
    default:  // dense has no index
      return;
  }
}

}  // namespace

void encode_envelopes(const EncodeJob* jobs, unsigned count, uint64_t most_tiles,
                      cudaStream_t stream) {
  const uint64_t tiles = std::max<uint64_t>(most_tiles, 1);
  launch(write_envelope, dim3(static_cast<unsigned>(tiles * count)), dim3(kTileSlots), 0, stream,
         jobs, count);
  check_launch("write_envelope");
}

void encode_spread_values(DType dtype, const EncodeJob* jobs, unsigned count, uint64_t most_tiles,
                          cudaStream_t stream) {
  if (most_tiles == 0) return;
  const auto kernel = size_of(dtype) == 4 ? spread_tile<uint32_t> : spread_tile<uint16_t>;
  launch(kernel, dim3(static_cast<unsigned>(most_tiles * count)), dim3(kTileSlots), 0, stream, jobs,
         count);
  check_launch("spread_tile");
}

void encode_indices(const EncodeJob* jobs, unsigned count, uint64_t most_tiles,
                    cudaStream_t stream) {
  if (most_tiles == 0) return;
  launch(write_index, dim3(static_cast<unsigned>(most_tiles * count)), dim3(kTileSlots), 0, stream,
         jobs, count);
  check_launch("write_index");
}

}  // namespace zen::cuda
