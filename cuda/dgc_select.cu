#include "cuda/dgc_select.h"

#include <cmath>

#include "core/dgc_guess.h"
#include "core/dgc_words_scalar.h"
#include "cuda/error.h"
#include "cuda/tile.cuh"

namespace zen::cuda {

namespace {

// One element with its memory.
struct Element {
  float g = 0;  // times the gain
  float u = 0;  // the momentum, moved on
  float v = 0;  // the residual with what the element adds
  bool was_empty = true;
};

template <class T, class M>
__device__ Element load(const DgcJob& job, uint64_t elem) {
  Element element;
  element.g = to_float(reinterpret_cast<const T*>(job.gradient)[elem]) * job.gain;
  const bool has_momentum = job.momentum != nullptr;
  if (has_momentum) element.u = to_float(reinterpret_cast<const M*>(job.momentum)[elem]);
  element.v = dgc_increment(element.g, has_momentum ? &element.u : nullptr, job.rule);
  if (job.residual == nullptr) return element;
  const float rest = to_float(reinterpret_cast<const M*>(job.residual)[elem]);
  element.was_empty = rest == 0;
  element.v = rest + element.v;
  return element;
}

__device__ bool is_finite(float x) {
  return magnitude_bits(x) < kInfinityBits;
}

__device__ bool is_candidate(const DgcJob& job, float v) {
  return is_finite(v) && magnitude_bits(v) >= job.threshold;
}

// A warp takes a word after the other.
template <class T, class M>
__global__ void __launch_bounds__(kTileSlots) mark_candidates(DgcJob job) {
  ZEN_SHARED(uint64_t, scratch, kWarps);
  const uint64_t tile = blockIdx.x;
  const unsigned lane = lane_of_thread();
  const uint64_t first = tile * kTileSlots + threadIdx.x / kWarpLanes * kWarpLanes;
  uint64_t own_mask = 0, own_endless = 0;
  for (unsigned at = 0; at < kWarpLanes && first + at < job.map.slots; ++at) {
    const uint64_t begin = job.map.word(first + at) * kWordElems;
    const uint64_t elements = job.map.slot_elements(first + at);
    bool candidate[2] = {}, endless[2] = {};
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned elem = lane + half * kWarpLanes;
      if (elem >= elements) continue;
      const float v = load<T, M>(job, begin + elem).v;
      candidate[half] = is_candidate(job, v);
      endless[half] = !is_finite(v);
    }
    const uint64_t mask = ballot_of_two(candidate[0], candidate[1]);
    const uint64_t without_end = ballot_of_two(endless[0], endless[1]);
    if (lane != at) continue;
    own_mask = mask;
    own_endless = without_end;
  }
  const uint64_t slot = tile * kTileSlots + threadIdx.x;
  if (slot < job.map.slots) job.endless[slot] = own_endless;
  write_tile(job.table, job.map, tile, own_mask, scratch);
}

// What stays in the residual of a listed element; the gradient gets what is sent.
template <class T>
__device__ float send(const DgcJob& job, float v, T& sent) {
  if (!is_finite(v)) {
    sent = from_float<T>(v);
    return 0;
  }
  sent = from_float_saturated<T>(v * job.send_scale);
  return v - to_float(sent) * job.unscale;
}

template <class T, class M>
__device__ void take(const DgcJob& job, uint64_t elem, bool listed) {
  const Element element = load<T, M>(job, elem);
  T sent{};
  const float rest = listed ? send(job, element.v, sent) : element.v;
  reinterpret_cast<T*>(job.gradient)[elem] = sent;
  if (job.residual != nullptr)
    reinterpret_cast<M*>(job.residual)[elem] = from_float_saturated<M>(rest);
  if (job.momentum == nullptr) return;
  const bool clear = listed && (job.rule.momentum_masking || !is_finite(element.v));
  reinterpret_cast<M*>(job.momentum)[elem] = from_float_saturated<M>(clear ? 0.0f : element.u);
}

template <class T, class M>
__global__ void __launch_bounds__(kTileSlots) apply_pass(DgcJob job) {
  ZEN_SHARED(uint64_t, scratch, kWarps);
  const uint64_t tile = blockIdx.x;
  const unsigned lane = lane_of_thread();
  const uint64_t slot = tile * kTileSlots + threadIdx.x, first = slot - lane;
  const uint64_t own_mask = mask_of_thread(job.table, tile);
  const uint64_t own_offset = offset_of_thread(job.table, tile, own_mask, scratch);
  const uint64_t own_endless = slot < job.map.slots ? job.endless[slot] : 0;
  uint64_t own_listed = 0;
  for (unsigned at = 0; at < kWarpLanes && first + at < job.map.slots; ++at) {
    const int source = static_cast<int>(at);
    const uint64_t mask = __shfl_sync(kAllLanes, own_mask, source);
    const uint64_t offset = __shfl_sync(kAllLanes, own_offset, source);
    const uint64_t endless = __shfl_sync(kAllLanes, own_endless, source);
    const uint64_t begin = job.map.word(first + at) * kWordElems;
    const uint64_t elements = job.map.slot_elements(first + at);
    bool is_listed[2] = {};
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned elem = lane + half * kWarpLanes;
      if (elem >= elements) continue;
      is_listed[half] =
          lists(endless, elem) || (lists(mask, elem) && offset + rank_of(mask, elem) < job.budget);
      take<T, M>(job, begin + elem, is_listed[half]);
    }
    const uint64_t listed = ballot_of_two(is_listed[0], is_listed[1]);
    if (lane == at) own_listed = listed;
  }
  if (slot < job.map.slots) job.listed[slot] = own_listed;
}

__global__ void __launch_bounds__(kTileSlots)
    mark_owned(const uint64_t* listed, uint64_t first_word, const SelectJob* jobs, unsigned count) {
  ZEN_SHARED(uint64_t, scratch, kWarps);
  const Place place = place_of_block(count);
  const SelectJob& job = jobs[place.job];
  if (place.tile >= job.table.tiles()) return;
  const uint64_t slot = place.tile * kTileSlots + threadIdx.x;
  const uint64_t mask = slot < job.map.slots ? listed[job.map.word(slot) - first_word] : 0;
  write_tile(job.table, job.map, place.tile, mask, scratch);
}

template <class T, class M>
__global__ void __launch_bounds__(kTileSlots)
    sample_places(DgcJob job, const uint64_t* places, uint64_t count, uint32_t* now,
                  uint32_t* next) {
  const uint64_t at = uint64_t{blockIdx.x} * kTileSlots + threadIdx.x;
  if (at >= count) return;
  Element element = load<T, M>(job, places[at]);
  const bool listed = magnitude_bits(element.v) >= job.threshold;
  if (listed && job.rule.momentum_masking) element.u = 0;
  const DgcGuess guess = guess_next(listed ? 0 : element.v, element.u, element.g, element.was_empty,
                                    job.residual != nullptr, job.momentum != nullptr, job.rule);
  now[at] = magnitude_bits(element.v);
  next[at] = guess_bits(guess.is_square ? sqrtf(guess.value) : guess.value);
}

// Calls f(T, M) with the types of the gradient and of its memory.
template <class F>
void with_types(DType dtype, DType memory, F&& f) {
  with_type(dtype, [&]<class T>(T) {
    if (memory == DType::f32)
      f(T{}, float{});
    else
      f(T{}, T{});
  });
}

}  // namespace

DgcJob DgcJob::of(const DgcPass& pass, std::byte* gradient) {
  DgcJob job;
  job.rule = pass.rule;
  job.gain = pass.gain;
  job.send_scale = pass.send_scale;
  job.unscale = pass.unscale;
  job.threshold = pass.threshold;
  job.budget = pass.budget;
  job.gradient = gradient;
  job.residual = pass.residual;
  job.momentum = pass.momentum;
  return job;
}

void dgc_mark(DType dtype, DType memory, const DgcJob& job, cudaStream_t stream) {
  if (job.table.slots == 0) return;
  with_types(dtype, memory, [&]<class T, class M>(T, M) {
    launch(mark_candidates<T, M>, dim3(static_cast<unsigned>(job.table.tiles())), dim3(kTileSlots),
           0, stream, job);
  });
  check_launch("mark_candidates");
}

void dgc_apply(DType dtype, DType memory, const DgcJob& job, cudaStream_t stream) {
  if (job.table.slots == 0) return;
  with_types(dtype, memory, [&]<class T, class M>(T, M) {
    launch(apply_pass<T, M>, dim3(static_cast<unsigned>(job.table.tiles())), dim3(kTileSlots), 0,
           stream, job);
  });
  check_launch("apply_pass");
}

void dgc_mark_owners(const uint64_t* listed, uint64_t first_word, const SelectJob* jobs,
                     unsigned count, uint64_t most_tiles, cudaStream_t stream) {
  if (most_tiles == 0) return;
  launch(mark_owned, dim3(static_cast<unsigned>(most_tiles * count)), dim3(kTileSlots), 0, stream,
         listed, first_word, jobs, count);
  check_launch("mark_owned");
}

void dgc_sample(DType dtype, DType memory, const DgcJob& job, const uint64_t* places,
                uint64_t count, uint32_t* now, uint32_t* next, cudaStream_t stream) {
  if (count == 0) return;
  with_types(dtype, memory, [&]<class T, class M>(T, M) {
    launch(sample_places<T, M>, dim3(static_cast<unsigned>((count + kTileSlots - 1) / kTileSlots)),
           dim3(kTileSlots), 0, stream, job, places, count, now, next);
  });
  check_launch("sample_places");
}

}  // namespace zen::cuda
