// How a CudaDevice selects what DGC sends: see dgc_select.h.
#include <algorithm>
#include <utility>

#include "core/dgc_pass.h"
#include "core/dgc_sample.h"
#include "core/select.h"
#include "cuda/cuda_device.h"
#include "cuda/dgc_select.h"
#include "cuda/error.h"
#include "cuda/selecting.h"

namespace zen::cuda {

namespace {

DType memory_type(const DgcPass& pass) {
  return pass.residual == nullptr ? DType::f32 : pass.memory;
}

}  // namespace

// The magnitudes of a sampler's places, on their way to the host.
struct CudaDevice::Drawn {
  Buffer host;  // now of all places, then next
  size_t count = 0;

  // REQUIRES: the stream has been waited for.
  void add_to(DgcSampler& sampler) const {
    const auto* magnitudes = reinterpret_cast<const uint32_t*>(host.data);
    sampler.add({magnitudes, count}, {magnitudes + count, count});
  }
};

CudaDevice::Drawn CudaDevice::draw(Step& step, const DgcSampler& sampler, const Gradient& gradient,
                                   const DgcPass& pass) {
  Drawn drawn;
  const std::span<const uint64_t> places = sampler.planned();
  drawn.count = places.size();
  if (drawn.count == 0) return drawn;
  const size_t bytes = 2 * drawn.count * sizeof(uint32_t);
  auto* now = reinterpret_cast<uint32_t*>(step.scratch(bytes));
  dgc_sample(gradient.dtype, memory_type(pass), DgcJob::of(pass, gradient.data.data),
             step.upload(places), drawn.count, now, now + drawn.count, stream_);
  drawn.host = pinned_memory_(bytes);
  cuda::check(cudaMemcpyAsync(drawn.host.data, now, bytes, cudaMemcpyDeviceToHost, stream_),
              "copying samples to the host");
  return drawn;
}

void CudaDevice::sample(DgcSampler& sampler, const Gradient& gradient, const DgcPass& pass) {
  Step step(stream_, device_memory_, pinned_memory_, wait_, held_);
  sampler.plan(0, gradient.numel);
  const Drawn drawn = draw(step, sampler, gradient, pass);
  wait_();
  held_.clear();
  drawn.add_to(sampler);
}

// Leaves in the gradient what is sent, and zeros. Returns a mask of that for each word; the number
// of candidates goes to *total.
const uint64_t* CudaDevice::pass_over(Step& step, const Gradient& gradient, const Shard& words,
                                      uint64_t* totals) {
  DgcJob job = DgcJob::of(*gradient.dgc, gradient.data.data);
  const DType memory = memory_type(*gradient.dgc);
  job.map = map_of(words);
  job.table = SlotTable::at(step.scratch(SlotTable::bytes(words.slots)), words.slots);
  job.endless = reinterpret_cast<uint64_t*>(step.scratch(2 * 8 * words.slots));
  job.listed = job.endless + words.slots;
  dgc_mark(gradient.dtype, memory, job, stream_);
  std::vector<ScanList> scans;
  add_scans(scans, job.table, totals);
  step.scan(scans);
  dgc_apply(gradient.dtype, memory, job, stream_);
  return job.listed;
}

// Single elements are selected from what the pass leaves in the gradient, as non-zeros.
Selection CudaDevice::dgc_select(const Gradient& gradient, const Placement& placement,
                                 WordRange range) {
  DgcPass& pass = *gradient.dgc;
  const bool elements = placement.kind() == PlacementKind::hashed_elements;
  const auto whole = Placement::make(PlacementKind::whole, gradient.numel, 1, 0);
  const size_t owners = elements ? 0 : static_cast<size_t>(placement.owners());
  Selection selection;
  {
    Step step(stream_, device_memory_, pinned_memory_, wait_, held_);
    uint64_t* totals = step.make_results((owners + 1) * kCounts);
    Drawn drawn;
    if (pass.sampler != nullptr) {
      plan_samples(*pass.sampler, elements ? *whole : placement, range);
      drawn = draw(step, *pass.sampler, gradient, pass);
    }
    const uint64_t* listed =
        pass_over(step, gradient, whole->shard(0, range), totals + owners * kCounts);
    if (elements) {
      step.read_results();
    } else {
      Selecting selecting = rooms(step, placement, range, gradient.dtype, totals, true);
      dgc_mark_owners(listed, range.begin, selecting.jobs, selecting.count, selecting.tiles,
                      stream_);
      selection = gather(step, gradient, std::move(selecting));
    }
    if (pass.sampler != nullptr) drawn.add_to(*pass.sampler);
    pass.budget -= std::min(pass.budget, step.results()[owners * kCounts + kValues]);
    held_.clear();
  }
  if (!elements) return selection;
  Gradient sent = gradient;
  sent.dgc = nullptr;
  return select_elements(sent, placement, range);
}

}  // namespace zen::cuda
