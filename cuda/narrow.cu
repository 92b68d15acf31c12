#include "cuda/narrow.h"

#include "cuda/error.h"
#include "cuda/tile.cuh"

namespace zen::cuda {

namespace {

constexpr uint64_t kBlockValues = 8 * kTileSlots;  // enough loads of a thread in flight

template <class T>
__global__ void __launch_bounds__(kTileSlots) narrow_block(const NarrowJob* jobs, unsigned count) {
  const Place place = place_of_block(count);
  const NarrowJob& job = jobs[place.job];
  const float* wide = reinterpret_cast<const float*>(job.wide);
  T* narrow = reinterpret_cast<T*>(job.narrow);
  const uint64_t first = place.tile * kBlockValues + threadIdx.x;
  ZEN_UNROLL
  for (unsigned turn = 0; turn < kBlockValues / kTileSlots; ++turn) {
    const uint64_t at = first + turn * kTileSlots;
    if (at < job.values) narrow[at] = from_float<T>(wide[at]);
  }
}

}  // namespace

void narrow(DType dtype, const NarrowJob* jobs, unsigned count, uint64_t most_values,
            cudaStream_t stream) {
  const uint64_t blocks = (most_values + kBlockValues - 1) / kBlockValues;
  if (blocks == 0) return;
  with_type(dtype, [&]<class T>(T) {
    launch(narrow_block<T>, dim3(static_cast<unsigned>(blocks * count)), dim3(kTileSlots), 0,
           stream, jobs, count);
  });
  check_launch("narrow_block");
}

}  // namespace zen::cuda
