#include "cuda/select.h"

#include "cuda/error.h"
#include "cuda/tile.cuh"

namespace zen::cuda {

namespace {

// Words whose elements a warp asks for before it looks at any: enough loads in flight.
constexpr unsigned kBatch = 4;

// One load of a lane: is the element listed? Tests bits, not values, so that no mode of the
// processor changes what a subnormal is.
template <class Bits>
__device__ bool is_listed(Bits bits) {
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  return (bits & kMagnitude) != 0;
}

template <class Bits>
__device__ uint64_t mask_of_word(Bits* word, uint64_t elements, Bits low, Bits high) {
  const unsigned lane = lane_of_thread();
  const uint64_t mask = __ballot_sync(kAllLanes, is_listed(low)) |
                        uint64_t{__ballot_sync(kAllLanes, is_listed(high))} << kWarpLanes;
  // A negative zero is neither listed nor 0.
  if (low != 0 && !is_listed(low)) word[lane] = 0;
  if (high != 0 && !is_listed(high) && lane + kWarpLanes < elements) word[lane + kWarpLanes] = 0;
  return mask;
}

template <class Bits>
__global__ void __launch_bounds__(kTileSlots)
    mark_tile(Bits* gradient, const SelectJob* jobs, unsigned count) {
  ZEN_SHARED(uint64_t, scratch, kWarps);
  const Place place = place_of_block(count);
  const SelectJob& job = jobs[place.job];
  if (place.tile >= job.table.tiles()) return;
  const unsigned lane = lane_of_thread();
  const uint64_t first = place.tile * kTileSlots + threadIdx.x / kWarpLanes * kWarpLanes;
  uint64_t own_mask = 0;
  for (unsigned at = 0; at < kWarpLanes && first + at < job.map.slots; at += kBatch) {
    Bits* words[kBatch];
    uint64_t elements[kBatch];
    Bits low[kBatch], high[kBatch];
    ZEN_UNROLL
    for (unsigned i = 0; i < kBatch; ++i) {
      const uint64_t slot = first + at + i;
      const bool exists = slot < job.map.slots;
      elements[i] = exists ? job.map.slot_elements(slot) : 0;
      words[i] = gradient + (exists ? job.map.word(slot) * kWordElems : 0);
      low[i] = lane < elements[i] ? words[i][lane] : Bits{0};
      high[i] = lane + kWarpLanes < elements[i] ? words[i][lane + kWarpLanes] : Bits{0};
    }
    ZEN_UNROLL
    for (unsigned i = 0; i < kBatch; ++i) {
      const uint64_t mask = mask_of_word(words[i], elements[i], low[i], high[i]);
      if (lane == at + i) own_mask = mask;
    }
  }
  write_tile(job.table, job.map, place.tile, own_mask, scratch);
}

template <class Bits>
__global__ void __launch_bounds__(kTileSlots)
    gather_tile(Bits* gradient, const SelectJob* jobs, unsigned count) {
  ZEN_SHARED(uint64_t, scratch, kWarps);
  const Place place = place_of_block(count);
  const SelectJob& job = jobs[place.job];
  if (place.tile >= job.table.tiles()) return;
  const uint64_t slot = place.tile * kTileSlots + threadIdx.x;
  const uint64_t own_mask = mask_of_thread(job.table, place.tile);
  const uint64_t own_offset = offset_of_thread(job.table, place.tile, own_mask, scratch);
  if (slot < job.table.slots) job.table.offsets[slot] = own_offset;
  Bits* values = reinterpret_cast<Bits*>(job.values);
  for_each_slot(place.tile, own_mask, own_offset, [&](uint64_t at, uint64_t mask, uint64_t offset) {
    for_own_elements([&](unsigned elem) {
      if (!lists(mask, elem)) return;
      Bits& element = gradient[job.map.element(at, elem)];
      values[offset + rank_of(mask, elem)] = element;
      if (job.takes) element = 0;
    });
  });
}

// Values are moved, not added: bits of their width do for every dtype.
template <class Of4, class Of2>
void launch_tiles(Of4 of_4_bytes, Of2 of_2_bytes, DType dtype, std::byte* gradient,
                  const SelectJob* jobs, unsigned count, uint64_t most_tiles, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(most_tiles * count));
  if (size_of(dtype) == 4)
    launch(of_4_bytes, grid, dim3(kTileSlots), 0, stream, reinterpret_cast<uint32_t*>(gradient),
           jobs, count);
  else
    launch(of_2_bytes, grid, dim3(kTileSlots), 0, stream, reinterpret_cast<uint16_t*>(gradient),
           jobs, count);
}

}  // namespace

void select_mark(DType dtype, std::byte* gradient, const SelectJob* jobs, unsigned count,
                 uint64_t most_tiles, cudaStream_t stream) {
  if (most_tiles == 0) return;
  launch_tiles(mark_tile<uint32_t>, mark_tile<uint16_t>, dtype, gradient, jobs, count, most_tiles,
               stream);
  check_launch("mark_tile");
}

void select_gather(DType dtype, std::byte* gradient, const SelectJob* jobs, unsigned count,
                   uint64_t most_tiles, cudaStream_t stream) {
  if (most_tiles == 0) return;
  launch_tiles(gather_tile<uint32_t>, gather_tile<uint16_t>, dtype, gradient, jobs, count,
               most_tiles, stream);
  check_launch("gather_tile");
}

}  // namespace zen::cuda
