#include "core/dgc_sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <utility>

#include "core/dgc_guess.h"
#include "core/dgc_pass.h"
#include "core/dgc_select_kernels.h"
#include "core/dgc_words_scalar.h"
#include "core/hash.h"

namespace zen {

namespace {

void keep_every_other(std::vector<uint32_t>& values) {
  const size_t kept = (values.size() + 1) / 2;
  for (size_t i = 0; i < kept; ++i) values[i] = values[2 * i];
  values.resize(kept);
}

}  // namespace

void DgcSamples::thin_to(uint64_t target) {
  for (; stride < target; stride *= 2) {
    keep_every_other(now);
    keep_every_other(next);
  }
}

uint32_t threshold_for(std::vector<uint32_t>& magnitudes, double share) {
  if (magnitudes.empty()) return 1;
  const auto count = static_cast<double>(magnitudes.size());
  const auto k = static_cast<size_t>(std::clamp(std::ceil(share * count), 1.0, count));
  const auto kth = magnitudes.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(magnitudes.begin(), kth, magnitudes.end(), std::greater<>());
  return std::clamp(*kth, uint32_t{1}, kInfinityBits);
}

uint64_t stride_of_ratio(double ratio) {
  uint64_t stride = 1;
  while (static_cast<double>(2 * stride) * ratio <= 1) stride *= 2;
  return stride;
}

uint64_t counted_elements(const std::vector<DgcSegment>& segments) {
  uint64_t elements = 0;
  for (const DgcSegment& segment : segments)
    if (segment.counted) elements += segment.end - segment.begin;
  return elements;
}

DgcSampler::DgcSampler(DgcSamples& samples, uint64_t wanted, uint64_t max_stride, uint32_t seed,
                       std::vector<DgcSegment> segments)
    : samples_(samples),
      wanted_(wanted),
      max_stride_(max_stride),
      seed_(seed),
      segments_(std::move(segments)) {}

void DgcSampler::observe(const Gradient& gradient, const DgcPass& pass, uint64_t begin,
                         uint64_t end) {
  with_dgc_types(gradient.dtype, pass, [&]<class T, class M>(T, M) {
    const auto* elements = reinterpret_cast<const T*>(gradient.data.data);
    for_each_place(begin, end, [&](uint64_t elem) { draw<T, M>(elements, pass, elem); });
  });
  thin();
}

void DgcSampler::plan(uint64_t begin, uint64_t end) {
  for_each_place(begin, end, [&](uint64_t elem) { planned_.push_back(elem); });
  thin();
}

void DgcSampler::add(std::span<const uint32_t> now, std::span<const uint32_t> next) {
  samples_.now.insert(samples_.now.end(), now.begin(), now.end());
  samples_.next.insert(samples_.next.end(), next.begin(), next.end());
  planned_.clear();
}

// What is planned follows what has been drawn.
void DgcSampler::thin() {
  while (samples_.now.size() + planned_.size() > 2 * wanted_ && samples_.stride < max_stride_) {
    const size_t drawn = samples_.now.size();
    samples_.thin_to(2 * samples_.stride);
    size_t kept = 0;
    for (size_t i = drawn % 2; i < planned_.size(); i += 2) planned_[kept++] = planned_[i];
    planned_.resize(kept);
  }
}

// Calls f(elem) for the places of samples in [begin, end), ascending.
template <class F>
void DgcSampler::for_each_place(uint64_t begin, uint64_t end, F&& f) {
  while (current_ < segments_.size() && segments_[current_].end <= begin) ++current_;
  for (size_t i = current_; i < segments_.size() && segments_[i].begin < end; ++i) {
    const DgcSegment& segment = segments_[i];
    if (!segment.counted) continue;
    const uint64_t first = std::max(begin, segment.begin), last = std::min(end, segment.end);
    const uint64_t stride = samples_.stride;
    const uint32_t seed = hash_word(segment.key, seed_);
    for (uint64_t stratum = (first - segment.begin) / stride;
         segment.begin + stratum * stride < last; ++stratum) {
      const uint32_t hash = hash_word(static_cast<uint32_t>(stratum), seed);
      const uint64_t elem = segment.begin + stratum * stride + (hash & (stride - 1));
      if (elem >= first && elem < last) f(elem);
    }
  }
}

template <class T, class M>
void DgcSampler::draw(const T* gradient, const DgcPass& pass, uint64_t elem) {
  const auto* residual = reinterpret_cast<const M*>(pass.residual);
  const auto* momentum = reinterpret_cast<const M*>(pass.momentum);
  const float g = to_float(gradient[elem]) * pass.gain;
  float u = momentum != nullptr ? to_float(momentum[elem]) : 0;
  const float increment = dgc_increment(g, momentum != nullptr ? &u : nullptr, pass.rule);
  const float v = residual != nullptr ? to_float(residual[elem]) + increment : increment;
  const bool listed = magnitude_bits(v) >= pass.threshold;
  if (listed && pass.rule.momentum_masking) u = 0;
  const bool was_empty = residual == nullptr || to_float(residual[elem]) == 0;
  const DgcGuess guess = guess_next(listed ? 0 : v, u, g, was_empty, residual != nullptr,
                                    momentum != nullptr, pass.rule);
  samples_.add(magnitude_bits(v),
               guess_bits(guess.is_square ? std::sqrt(guess.value) : guess.value));
}

}  // namespace zen
