// One bucket's way through DGC ("Deep Gradient Compression", Lin et al., ICLR 2018): what a rank
// has not sent yet waits in a residual until it is large enough.
//
// For each element, in float32 and in this order (g is the gradient, u the momentum, v the
// residual, m the momentum factor):
//   g := g * gain
//   without momentum: v += g      plain: u := m u + g, v += u      Nesterov: u := m (u + g), v += u
//   + g |v| >= threshold: round(v * send_scale) is listed, v keeps what rounding dropped, and u is
//                     cleared (momentum-factor masking); otherwise v and u stay.
// The gradient becomes zero everywhere: the pull overwrites what is listed by any rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dgc_sample.h"
#include "core/dtype.h"

namespace zen {

// Magnitudes are compared as integers, the bits of a float32 without its sign. They are in the same
// order as the numbers, and NaN comes last: it is always sent, whatever the threshold.
using MagnitudeBits = uint32_t;

constexpr MagnitudeBits kInfinityBits = 0x7f800000u;

struct DgcRule {
  float momentum = 0;  // m; with 0 there is no u
  bool nesterov = false;
  bool momentum_masking = true;
};

// Invariants:
// 1. residual and momentum, where there are any, have as many elements as the gradient and are
//    finite before and after.
// 2. A listed value that is not finite leaves 0 in both. Finite values too large for their type are
//    sent, or kept, as its largest finite number.
struct DgcPass {
  DgcRule rule;
  std::byte* residual = nullptr;  // null: no error feedback, what is not listed is dropped
  std::byte* momentum = nullptr;  // null iff rule.momentum is 0. REQUIRES: a residual
  DType memory = DType::f32;      // of both: float32 or the gradient's type
  float gain = 1;                 // 1 / loss scale, times the factor of gradient clipping
  float send_scale = 1;           // the loss scale
  float unscale = 1;              // 1 / send_scale

  MagnitudeBits threshold = 1;  // at least 1, so that zeros are never listed; at most kInfinityBits
  // So many finite elements may still be listed, the lowest indices first: equal magnitudes, or a
  // threshold that has become too low, must not send everything. Falls during the pass.
  uint64_t budget = UINT64_MAX;

  DgcSampler* sampler = nullptr;  // null: nothing is sampled
};

}  // namespace zen
