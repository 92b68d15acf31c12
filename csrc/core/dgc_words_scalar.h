// What the DGC pass does to one word, in plain C++: the reference for every other instruction set.
#pragma once

#include <bit>
#include <cstdint>

#include "core/dgc_pass.h"
#include "core/dtype.h"

namespace zen {

constexpr MagnitudeBits magnitude_bits(float x) {
  return std::bit_cast<uint32_t>(x) & 0x7fffffffu;
}

// Magnitudes from here on do not round to a finite number of the type.
template <class T>
constexpr MagnitudeBits overflow_bits() {
  switch (DTypeOf<T>::value) {
    case DType::f16:
      return 0x477ff000u;  // 65520
    case DType::bf16:
      return 0x7f7f8000u;
    case DType::f32:
      break;
  }
  return kInfinityBits;
}

// Rounds; what does not round to a finite number becomes the largest finite one of its sign.
// REQUIRES: x is not NaN.
template <class T>
constexpr T from_float_saturated(float x) {
  constexpr float kLargest = DTypeOf<T>::value == DType::f16 ? 65504.0f
                             : DTypeOf<T>::value == DType::bf16
                                 ? std::bit_cast<float>(0x7f7f0000u)
                                 : std::bit_cast<float>(kInfinityBits - 1);
  if (magnitude_bits(x) < overflow_bits<T>()) return from_float<T>(x);
  return from_float<T>(x < 0 ? -kLargest : kLargest);
}

// What the element adds to the residual; moves the momentum on. REQUIRES: u is not null iff the
// pass has momentum.
constexpr float dgc_increment(float g, float* u, const DgcRule& rule) {
  if (u == nullptr) return g;
  if (rule.nesterov) {
    *u = rule.momentum * (*u + g);
    return *u + g;
  }
  *u = rule.momentum * *u + g;
  return *u;
}

struct DgcScalarWords {
  // Returns the mask of the listed elements and writes the values to send to sent[0, count): zero
  // where the element is not listed. M is the type of residual and momentum, null where the pass
  // has none.
  template <class T, class M>
  static uint64_t take(T* gradient, M* residual, M* momentum, uint64_t count, DgcPass& pass,
                       T* sent) {
    uint64_t mask = 0;
    for (uint64_t elem = 0; elem < count; ++elem) {
      float u = momentum != nullptr ? to_float(momentum[elem]) : 0;
      const float increment = dgc_increment(to_float(gradient[elem]) * pass.gain,
                                            momentum != nullptr ? &u : nullptr, pass.rule);
      const float v = residual != nullptr ? to_float(residual[elem]) + increment : increment;
      const bool listed = is_listed(v, pass);
      const float rest = send(v, listed, pass, sent[elem]);
      mask |= uint64_t{listed} << elem;
      gradient[elem] = T{};
      if (residual != nullptr) residual[elem] = from_float_saturated<M>(rest);
      if (momentum != nullptr) {
        const bool clear = listed && (pass.rule.momentum_masking || !is_finite(v));
        momentum[elem] = from_float_saturated<M>(clear ? 0.0f : u);
      }
    }
    return mask;
  }

 private:
  static bool is_finite(float x) { return magnitude_bits(x) < kInfinityBits; }

  static bool is_listed(float v, DgcPass& pass) {
    if (!is_finite(v)) return true;
    if (magnitude_bits(v) < pass.threshold || pass.budget == 0) return false;
    --pass.budget;
    return true;
  }

  // Returns what stays in the residual.
  template <class T>
  static float send(float v, bool listed, const DgcPass& pass, T& sent) {
    sent = T{};
    if (!listed) return v;
    if (!is_finite(v)) {
      sent = from_float<T>(v);
      return 0;
    }
    sent = from_float_saturated<T>(v * pass.send_scale);
    return v - to_float(sent) * pass.unscale;
  }
};

}  // namespace zen
