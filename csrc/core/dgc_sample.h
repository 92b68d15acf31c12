// Magnitudes of accumulated gradients, sampled to find the threshold that lists a given share.
//
// One element is drawn from each stratum of `stride` consecutive elements of a parameter, at a
// hashed place, so that rows of any width are met evenly, and the same ones in every run, whatever
// buckets the parameters lie in. When more samples come together than were wanted, the stride
// doubles and every other sample goes.
//
// A sample is two magnitudes: what the element is `now`, and what it may be in the next iteration,
// its residual after this pass plus a gradient like this one's with a random sign. The sign hashes
// the values, not the place, so that the samples of a model cut over several ranks are the same
// multiset as those of the whole model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/gradient.h"

namespace zen {

struct DgcPass;

struct DgcSamples {
  std::vector<uint32_t> now, next;  // equally many magnitudes (bits of float32 without the sign)
  uint64_t stride = 1;              // a power of two

  void add(uint32_t magnitude_now, uint32_t magnitude_next) {
    now.push_back(magnitude_now);
    next.push_back(magnitude_next);
  }
  // Doubles the stride until it is `target`. REQUIRES: target is a power of two.
  void thin_to(uint64_t target);
};

// Bits of the k-th largest magnitude, k = ceil(share * count): so many would be listed if it were
// the threshold, equal magnitudes aside. At least 1, and 1 if there are no samples. Reorders.
uint32_t threshold_for(std::vector<uint32_t>& magnitudes, double share);

// A parameter in a bucket. The segments of a bucket cover it in ascending order.
struct DgcSegment {
  uint64_t begin = 0, end = 0;  // elements of the bucket, half-open
  uint32_t key = 0;             // of the parameter, the same in every bucket and run
  bool counted = true;          // false: another rank of the pool samples and counts it
};

// Elements of the counted segments.
uint64_t counted_elements(const std::vector<DgcSegment>& segments);

class DgcSampler {
 public:
  // Draws with `samples.stride` at first and at most `max_stride` (a power of two); doubles it as
  // soon as there are more than twice `wanted` samples. `samples` outlives the sampler.
  DgcSampler(DgcSamples& samples, uint64_t wanted, uint64_t max_stride, uint32_t seed,
             std::vector<DgcSegment> segments);

  // Draws from elements [begin, end) of a bucket that the pass has not reached yet. Ranges of one
  // bucket come in ascending order.
  void observe(const Gradient& gradient, const DgcPass& pass, uint64_t begin, uint64_t end);

  // The same for a gradient in the memory of a device, in two steps. Which places are drawn does
  // not depend on what is there: plan() adds those of a range to planned(), and add() brings the
  // magnitudes of all that are planned, in that order.
  void plan(uint64_t begin, uint64_t end);
  std::span<const uint64_t> planned() const { return planned_; }
  void add(std::span<const uint32_t> now, std::span<const uint32_t> next);

 private:
  template <class F>
  void for_each_place(uint64_t begin, uint64_t end, F&& f);
  template <class T, class M>
  void draw(const T* gradient, const DgcPass& pass, uint64_t elem);
  void thin();

  DgcSamples& samples_;
  uint64_t wanted_, max_stride_;
  uint32_t seed_;
  std::vector<DgcSegment> segments_;
  size_t current_ = 0;  // the first segment that is not behind
  std::vector<uint64_t> planned_;
};

// Largest power of two that is at most 1 / ratio. REQUIRES: 0 < ratio <= 1.
uint64_t stride_of_ratio(double ratio);

}  // namespace zen
