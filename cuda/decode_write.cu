#include "cuda/decode_write.h"

#include "cuda/error.h"
#include "cuda/tile.cuh"
#include "cuda/values.cuh"

namespace zen::cuda {

namespace {

template <class Bits>
__global__ void __launch_bounds__(kTileSlots)
    write_listed(const OpenJob* jobs, unsigned count, Bits* gradient) {
  const Place place = place_of_block(count);
  const OpenJob& job = jobs[place.job];
  if (place.tile >= job.table.tiles() || *job.any_bad != 0) return;
  const uint64_t slot = place.tile * kTileSlots + threadIdx.x;
  const uint64_t own_mask = mask_of_thread(job.table, place.tile);
  const uint64_t own_offset = slot < job.table.slots ? job.table.offsets[slot] : 0;
  for_each_slot(place.tile, own_mask, own_offset, [&](uint64_t at, uint64_t mask, uint64_t offset) {
    for_own_elements([&](unsigned elem) {
      if (lists(mask, elem))
        gradient[job.map.element(at, elem)] = bits_at<Bits>(job, offset + rank_of(mask, elem));
    });
  });
}

}  // namespace

void decode_write(DType dtype, const OpenJob* jobs, unsigned count, uint64_t most_tiles,
                  std::byte* gradient, cudaStream_t stream) {
  if (most_tiles == 0) return;
  const dim3 grid(static_cast<unsigned>(most_tiles * count));
  if (size_of(dtype) == 4)
    launch(write_listed<uint32_t>, grid, dim3(kTileSlots), 0, stream, jobs, count,
           reinterpret_cast<uint32_t*>(gradient));
  else
    launch(write_listed<uint16_t>, grid, dim3(kTileSlots), 0, stream, jobs, count,
           reinterpret_cast<uint16_t*>(gradient));
  check_launch("write_listed");
}

}  // namespace zen::cuda
