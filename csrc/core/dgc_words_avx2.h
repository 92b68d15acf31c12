// The DGC pass over one word for AVX2: the same function as DgcScalarWords, which takes over where
// anything unusual happens. Include it between ZEN_BEGIN_AVX2 and ZEN_END_AVX2.
#pragma once

#include <bit>
#include <cstdint>

#include "core/dgc_words_scalar.h"
#include "core/words_avx2.h"

namespace zen {

struct DgcAvx2Words {
  // REQUIRES: count == 64.
  template <class T, class M>
  ZEN_INLINE static uint64_t take(T* gradient, M* residual, M* momentum, uint64_t count,
                                  DgcPass& pass, T* sent) {
    alignas(32) float v[64], u[64];
    const __m256i below = lanes(pass.threshold - 1);
    __m256i largest = _mm256_setzero_si256();
    uint64_t mask = 0;
    for (int i = 0; i < 64; i += 8) {
      const __m256 added = accumulate(gradient + i, at(residual, i), at(momentum, i), pass, u + i);
      _mm256_store_ps(v + i, added);
      const __m256i bits = magnitude(added);
      largest = _mm256_max_epi32(largest, bits);
      if (momentum != nullptr)
        largest = _mm256_max_epi32(largest, magnitude(_mm256_load_ps(u + i)));
      const __m256 listed = _mm256_castsi256_ps(_mm256_cmpgt_epi32(bits, below));
      mask |= uint64_t{static_cast<uint32_t>(_mm256_movemask_ps(listed))} << i;
    }
    const auto taken = static_cast<uint64_t>(std::popcount(mask));
    if (reaches(largest, overflow_bits<M>()) || taken > pass.budget) [[unlikely]]
      return DgcScalarWords::take(gradient, residual, momentum, count, pass, sent);
    if (taken > kFewSent) {
      if (!send_many(v, u, residual, momentum, pass, sent))
        return DgcScalarWords::take(gradient, residual, momentum, count, pass, sent);
    } else {
      send_few(v, u, mask, residual, momentum, pass, sent);
    }
    pass.budget -= taken;
    for (int i = 0; i < 64; i += 8) Avx2Words::store_floats(_mm256_setzero_ps(), gradient + i);
    return mask;
  }

 private:
  // Up to so many listed elements are rounded one by one.
  static constexpr uint64_t kFewSent = 8;

  // Everything stays; then what is sent is taken out.
  template <class T, class M>
  ZEN_INLINE static void send_few(const float* v, const float* u, uint64_t mask, M* residual,
                                  M* momentum, const DgcPass& pass, T* sent) {
    for (int i = 0; i < 64; i += 8) {
      if (residual != nullptr) Avx2Words::store_floats(_mm256_load_ps(v + i), residual + i);
      if (momentum != nullptr) Avx2Words::store_floats(_mm256_load_ps(u + i), momentum + i);
    }
    for (; mask != 0; mask &= mask - 1) {
      const int elem = std::countr_zero(mask);
      sent[elem] = from_float_saturated<T>(v[elem] * pass.send_scale);
      if (residual != nullptr)
        residual[elem] = from_float_saturated<M>(v[elem] - to_float(sent[elem]) * pass.unscale);
      if (momentum != nullptr && pass.rule.momentum_masking) momentum[elem] = M{};
    }
  }

  // The same for all elements at once; false, with nothing written, if one is too large for T.
  template <class T, class M>
  ZEN_INLINE static bool send_many(const float* v, const float* u, M* residual, M* momentum,
                                   const DgcPass& pass, T* sent) {
    const __m256 scale = _mm256_set1_ps(pass.send_scale), unscale = _mm256_set1_ps(pass.unscale);
    const __m256i below = lanes(pass.threshold - 1);
    const __m256i kept_momentum = lanes(pass.rule.momentum_masking ? 0 : ~0u);
    __m256i largest = _mm256_setzero_si256();
    for (int i = 0; i < 64; i += 8)
      largest = _mm256_max_epi32(largest, magnitude(_mm256_mul_ps(_mm256_load_ps(v + i), scale)));
    if (reaches(largest, overflow_bits<T>())) [[unlikely]]
      return false;
    for (int i = 0; i < 64; i += 8) {
      const __m256 added = _mm256_load_ps(v + i);
      const __m256i listed = _mm256_cmpgt_epi32(magnitude(added), below);
      Avx2Words::store_floats(_mm256_mul_ps(added, scale), sent + i);
      const __m256 received = _mm256_mul_ps(Avx2Words::load_floats(sent + i), unscale);
      if (residual != nullptr)
        Avx2Words::store_floats(
            _mm256_sub_ps(added, _mm256_and_ps(_mm256_castsi256_ps(listed), received)),
            residual + i);
      if (momentum != nullptr) {
        const __m256 cleared = _mm256_castsi256_ps(_mm256_andnot_si256(kept_momentum, listed));
        Avx2Words::store_floats(_mm256_andnot_ps(cleared, _mm256_load_ps(u + i)), momentum + i);
      }
    }
    return true;
  }

  template <class M>
  ZEN_INLINE static M* at(M* memory, int elem) {
    return memory == nullptr ? nullptr : memory + elem;
  }

  template <class T, class M>
  ZEN_INLINE static __m256 accumulate(const T* gradient, const M* residual, const M* momentum,
                                      const DgcPass& pass, float* u) {
    __m256 increment = _mm256_mul_ps(Avx2Words::load_floats(gradient), _mm256_set1_ps(pass.gain));
    if (momentum != nullptr) {
      const __m256 factor = _mm256_set1_ps(pass.rule.momentum);
      const __m256 before = Avx2Words::load_floats(momentum);
      const __m256 after = pass.rule.nesterov
                               ? _mm256_mul_ps(factor, _mm256_add_ps(before, increment))
                               : _mm256_add_ps(_mm256_mul_ps(factor, before), increment);
      _mm256_store_ps(u, after);
      increment = pass.rule.nesterov ? _mm256_add_ps(after, increment) : after;
    }
    return residual == nullptr ? increment
                               : _mm256_add_ps(Avx2Words::load_floats(residual), increment);
  }

  ZEN_INLINE static __m256i lanes(uint32_t bits) {
    return _mm256_set1_epi32(static_cast<int32_t>(bits));
  }
  ZEN_INLINE static __m256i magnitude(__m256 x) {
    return _mm256_and_si256(_mm256_castps_si256(x), lanes(0x7fffffffu));
  }
  ZEN_INLINE static bool reaches(__m256i magnitudes, MagnitudeBits limit) {
    return _mm256_movemask_epi8(_mm256_cmpgt_epi32(magnitudes, lanes(limit - 1))) != 0;
  }
};

}  // namespace zen
