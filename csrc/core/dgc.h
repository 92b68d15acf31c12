// DGC over the buckets of a model: which threshold, which target and which budget each pass gets.
//
// One threshold serves the whole model in an iteration. It is found from samples of the iteration
// before, so that no bucket waits for another; the first iteration has none yet and takes a
// threshold for each bucket from that bucket alone. Between iterations residuals grow where nothing
// was sent, so the quantile is taken of a guess of the next magnitudes (dgc_sample.h), corrected by
// how the guesses have missed so far, and by what was sent too much or too little lately.
//
// Used by one thread at a time. Everything is deterministic: the same calls give the same
// thresholds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/device.h"
#include "core/dgc_pass.h"
#include "core/dgc_sample.h"
#include "core/gradient.h"

namespace zen {

struct DgcOptions {
  double density = 0.05;  // share of the elements to send, (0, 1]
  DgcRule rule;
  double clip_norm = 0;        // of the local gradient, already divided by sqrt(n); 0: no clipping
  uint64_t warmup = 0;         // iterations until `density` is reached
  uint64_t warmup_stages = 4;  // in so many steps, each a constant factor
  double sample_ratio = 0.01;  // (0, 1]: at least this share of the elements is sampled
  bool per_bucket = false;     // a threshold for each bucket, sampled just before its pass
  uint32_t seed = 0;           // of the places of samples
};

// Density of an iteration: density^((s + 1) / (S + 1)) in stage s of S, as the paper's 25%, 6.25%,
// 1.5625%, 0.4%, 0.1%.
double density_at(const DgcOptions& options, uint64_t iteration);

// The memory of one bucket's elements.
struct DgcMemory {
  std::byte* residual = nullptr;
  std::byte* momentum = nullptr;
  DType dtype = DType::f32;
};

// How samples of several ranks that hold parts of one model come together. The functions are
// collective over those ranks.
class DgcPool {
 public:
  virtual ~DgcPool() = default;
  // Everybody's samples, in the same order on all ranks, at the largest stride of any.
  virtual DgcSamples gather(DgcSamples samples) = 0;
  virtual double sum(double value) = 0;
};

// What goes on from iteration to iteration; to be saved with a checkpoint.
struct DgcState {
  uint64_t iteration = 0;
  MagnitudeBits threshold = 0;  // of the next iteration; 0: none yet
  MagnitudeBits guess = 0;      // the uncorrected quantile that `threshold` comes from
  double correction = 0;        // log of what guesses are multiplied by
  double excess = 0;            // share sent too much lately, in targets
  uint64_t stride = 1;          // of sampling
  uint64_t elements = 0;        // of the model, all parts together
};

class Dgc {
 public:
  // `pool` null: this rank has the whole model. Throws InvalidArgument if an option is out of
  // range.
  Dgc(const DgcOptions& options, DgcPool* pool);
  Dgc(const Dgc&) = delete;
  Dgc& operator=(const Dgc&) = delete;

  const DgcOptions& options() const { return options_; }

  // The pass of the next bucket, valid until the following begin_bucket(). `scale` is the loss
  // scale of the gradient, `clip` the factor of clip_factor().
  // Gradient and memory are the device's.
  DgcPass& begin_bucket(Device& device, const Gradient& gradient, const DgcMemory& memory,
                        float scale, float clip, const std::vector<DgcSegment>& segments);

  // After the last bucket's pass. Collective over the pool.
  void end_iteration();

  // What clip_norm makes of a gradient, given sum_of_squares() of all its buckets on this rank: at
  // most 1. Collective over the pool.
  float clip_factor(double sum_of_squares);

  const DgcState& state() const { return state_; }
  void restore(const DgcState& state);

 private:
  double density() const { return density_at(options_, state_.iteration); }
  void aim_at_bucket(Device& device, const Gradient& gradient,
                     const std::vector<DgcSegment>& segments);
  void correct(DgcSamples& samples, double target);
  void aim(DgcSamples& samples);
  uint64_t budget_for(uint64_t elements) const;
  uint64_t wanted_samples(double density) const;
  uint32_t sampling_seed() const;

  DgcOptions options_;
  DgcPool* pool_;
  DgcState state_;
  DgcSamples samples_;         // of this iteration
  uint64_t sampled_elements_;  // of this iteration, on this rank
  DgcPass pass_;
  std::optional<DgcSampler> sampler_;
};

// Sum of the squares of the counted elements, times gain squared, in float64.
double sum_of_squares(const Gradient& gradient, double gain,
                      const std::vector<DgcSegment>& segments);

}  // namespace zen
