#include "core/dgc.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/hash.h"

namespace zen {

namespace {

constexpr double kMostTargets = 1.3;  // never send more than so many times the target

// At a relative error of 1 / sqrt(k) of the number above a threshold, k listed samples are enough.
constexpr double kWantedListed = 1024;

// How quickly guesses are corrected, how long an excess is remembered and how strongly it is made
// up for. Chosen on the gradients of language models: larger ones follow the noise of batches.
constexpr double kCorrectionRate = 0.5, kExcessMemory = 0.9, kExcessRate = 0.2;
constexpr double kLargestCorrection = 2;  // of a logarithm: a spike must not last

MagnitudeBits scaled(MagnitudeBits magnitude, double factor) {
  const double product = std::bit_cast<float>(magnitude) * factor;
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(product));
  return std::clamp(bits, MagnitudeBits{1}, kInfinityBits);
}

bool is_usable(MagnitudeBits magnitude) {
  return magnitude > 1 && magnitude < kInfinityBits;
}

void check(const DgcOptions& options) {
  const auto in_unit = [](double x) { return x > 0 && x <= 1; };
  if (!in_unit(options.density))
    throw InvalidArgument("density is " + std::to_string(options.density) +
                          ": it must be above 0 and at most 1");
  if (!in_unit(options.sample_ratio))
    throw InvalidArgument("sample_ratio is " + std::to_string(options.sample_ratio) +
                          ": it must be above 0 and at most 1");
  if (!(options.rule.momentum >= 0 && options.rule.momentum < 1))
    throw InvalidArgument("momentum is " + std::to_string(options.rule.momentum) +
                          ": it must be at least 0 and below 1");
}

}  // namespace

double density_at(const DgcOptions& options, uint64_t iteration) {
  if (iteration >= options.warmup) return options.density;
  const uint64_t stage = iteration * options.warmup_stages / options.warmup;
  return std::pow(options.density,
                  static_cast<double>(stage + 1) / static_cast<double>(options.warmup_stages + 1));
}

Dgc::Dgc(const DgcOptions& options, DgcPool* pool)
    : options_(options), pool_(pool), sampled_elements_(0) {
  check(options);
}

DgcPass& Dgc::begin_bucket(Device& device, const Gradient& gradient, const DgcMemory& memory,
                           float scale, float clip, const std::vector<DgcSegment>& segments) {
  pass_ = {.rule = options_.rule,
           .residual = memory.residual,
           .momentum = memory.momentum,
           .memory = memory.dtype,
           .gain = clip / scale,
           .send_scale = scale,
           .unscale = 1 / scale,
           // An iteration's buckets share its budget, so that one may take what others leave.
           .budget = pass_.budget};
  const bool is_first_bucket = sampled_elements_ == 0;
  sampled_elements_ += counted_elements(segments);
  if (density() == 1) {
    pass_.threshold = 1;
    pass_.budget = UINT64_MAX;
  } else if (options_.per_bucket || state_.threshold == 0) {
    aim_at_bucket(device, gradient, segments);
  } else {
    pass_.threshold = state_.threshold;
    if (is_first_bucket) pass_.budget = budget_for(state_.elements);
  }
  if (!options_.per_bucket) {
    if (is_first_bucket) samples_ = {{}, {}, state_.stride};
    sampler_.emplace(samples_, wanted_samples(density()), stride_of_ratio(options_.sample_ratio),
                     sampling_seed(), segments);
    pass_.sampler = &*sampler_;
  }
  return pass_;
}

void Dgc::aim_at_bucket(Device& device, const Gradient& gradient,
                        const std::vector<DgcSegment>& segments) {
  DgcSamples samples;
  DgcSampler sampler(samples, wanted_samples(density()), stride_of_ratio(options_.sample_ratio),
                     sampling_seed(), segments);
  device.sample(sampler, gradient, pass_);
  uint64_t elements = counted_elements(segments);
  if (pool_ != nullptr) {
    samples = pool_->gather(std::move(samples));
    elements = static_cast<uint64_t>(pool_->sum(static_cast<double>(elements)));
  }
  pass_.threshold = threshold_for(samples.now, density());
  pass_.budget = budget_for(elements);
}

void Dgc::end_iteration() {
  const double target = density();
  ++state_.iteration;
  const uint64_t elements = std::exchange(sampled_elements_, 0);
  if (options_.per_bucket) return;
  DgcSamples all = std::exchange(samples_, {});
  state_.elements = elements;
  if (pool_ != nullptr) {
    all = pool_->gather(std::move(all));
    state_.elements = static_cast<uint64_t>(pool_->sum(static_cast<double>(elements)));
  }
  state_.stride = all.stride;
  correct(all, target);
  aim(all);
}

// Learns from what was listed, and from what should have been.
void Dgc::correct(DgcSamples& samples, double target) {
  if (state_.threshold != 0 && !samples.now.empty()) {
    const auto listed = std::count_if(samples.now.begin(), samples.now.end(),
                                      [&](MagnitudeBits m) { return m >= state_.threshold; });
    const double share = static_cast<double>(listed) / static_cast<double>(samples.now.size());
    state_.excess = state_.excess * kExcessMemory + std::min(share / target, kMostTargets) - 1;
  }
  const MagnitudeBits right = threshold_for(samples.now, target);
  if (!is_usable(right) || !is_usable(state_.guess)) return;
  const double miss = std::log(std::bit_cast<float>(right) / std::bit_cast<float>(state_.guess));
  state_.correction += kCorrectionRate * (miss - state_.correction);
  state_.correction = std::clamp(state_.correction, -kLargestCorrection, kLargestCorrection);
}

// Chooses the threshold of the iteration to come.
void Dgc::aim(DgcSamples& samples) {
  const auto largest = std::max_element(samples.next.begin(), samples.next.end());
  if (largest == samples.next.end() || *largest == 0) {
    state_.threshold = state_.guess = 0;  // nothing to go by
    return;
  }
  const double target = density();
  const double share = target * std::clamp(1 - kExcessRate * state_.excess, 0.5, 1.5);
  state_.guess = threshold_for(samples.next, target);
  state_.threshold =
      scaled(threshold_for(samples.next, std::min(share, 1.0)), std::exp(state_.correction));
}

float Dgc::clip_factor(double sum_of_squares) {
  if (options_.clip_norm == 0) return 1;
  if (pool_ != nullptr) sum_of_squares = pool_->sum(sum_of_squares);
  const double norm = std::sqrt(sum_of_squares);
  if (!std::isfinite(norm)) return 1;  // infinities must arrive as such
  return static_cast<float>(std::min(1.0, options_.clip_norm / (norm + 1e-6)));
}

void Dgc::restore(const DgcState& state) {
  state_ = state;
}

uint64_t Dgc::budget_for(uint64_t elements) const {
  if (elements == 0) return 0;
  const double target = std::max(1.0, density() * static_cast<double>(elements));
  return static_cast<uint64_t>(std::ceil(kMostTargets * target));
}

uint64_t Dgc::wanted_samples(double density) const {
  return static_cast<uint64_t>(std::ceil(kWantedListed / density));
}

uint32_t Dgc::sampling_seed() const {
  return options_.seed ^ fmix32(static_cast<uint32_t>(state_.iteration) + 1);
}

double sum_of_squares(const Gradient& gradient, double gain,
                      const std::vector<DgcSegment>& segments) {
  return with_type(gradient.dtype, [&]<class T>(T) {
    const auto* elements = reinterpret_cast<const T*>(gradient.data.data);
    double sum = 0;
    for (const DgcSegment& segment : segments) {
      if (!segment.counted) continue;
      for (uint64_t elem = segment.begin; elem < segment.end; ++elem) {
        const double x = to_float(elements[elem]) * gain;
        sum += x * x;
      }
    }
    return sum;
  });
}

}  // namespace zen
