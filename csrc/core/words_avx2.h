// The word kernels for AVX2: the same functions as ScalarWords, which see for what they do. Include
// it between ZEN_BEGIN_AVX2 and ZEN_END_AVX2.
//
// Masks are taken a byte at a time: eight lanes of 32 bits or eight of 16 bits are moved by one
// shuffle from a table. Bits of a half or bfloat16 are widened and rounded exactly as dtype.h does.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/lane_tables.h"

namespace zen {

struct Avx2Words {
  // REQUIRES: count == 64.
  static uint64_t list(float* elements, uint64_t) {
    __m256i v[8], any = _mm256_setzero_si256();
    for (int i = 0; i < 8; ++i) {
      v[i] = load(elements + 8 * i);
      any = _mm256_or_si256(any, v[i]);
    }
    if (_mm256_testz_si256(any, any)) return 0;
    __m256i zero[8], negative = _mm256_setzero_si256();
    for (int i = 0; i < 8; ++i) {
      zero[i] = _mm256_cmpeq_epi32(_mm256_slli_epi32(v[i], 1), _mm256_setzero_si256());
      negative = _mm256_or_si256(negative, _mm256_and_si256(v[i], zero[i]));
    }
    if (!_mm256_testz_si256(negative, negative))
      for (int i = 0; i < 8; ++i)
        store_vector(elements + 8 * i, _mm256_andnot_si256(zero[i], v[i]));
    const __m256i pairs[4] = {
        _mm256_packs_epi32(zero[0], zero[1]), _mm256_packs_epi32(zero[2], zero[3]),
        _mm256_packs_epi32(zero[4], zero[5]), _mm256_packs_epi32(zero[6], zero[7])};
    return ~(uint64_t{byte_mask(pairs[0], pairs[1])} | uint64_t{byte_mask(pairs[2], pairs[3])}
                                                           << 32);
  }

  template <class T>
  static uint64_t list(T* elements, uint64_t) {
    __m256i v[4], any = _mm256_setzero_si256();
    for (int i = 0; i < 4; ++i) {
      v[i] = load(elements + 16 * i);
      any = _mm256_or_si256(any, v[i]);
    }
    if (_mm256_testz_si256(any, any)) return 0;
    __m256i zero[4], negative = _mm256_setzero_si256();
    for (int i = 0; i < 4; ++i) {
      zero[i] = _mm256_cmpeq_epi16(_mm256_slli_epi16(v[i], 1), _mm256_setzero_si256());
      negative = _mm256_or_si256(negative, _mm256_and_si256(v[i], zero[i]));
    }
    if (!_mm256_testz_si256(negative, negative))
      for (int i = 0; i < 4; ++i)
        store_vector(elements + 16 * i, _mm256_andnot_si256(zero[i], v[i]));
    return ~(uint64_t{byte_mask16(zero[0], zero[1])} | uint64_t{byte_mask16(zero[2], zero[3])}
                                                           << 32);
  }

  template <class T>
  static T* compress(const T* elements, uint64_t mask, T* out) {
    if (mask == ~uint64_t{0}) {
      copy_word(elements, out);
      return out + 64;
    }
    for (int i = 0; i < 8; ++i, mask >>= 8) {
      const auto lanes = static_cast<uint8_t>(mask);
      compress_lanes(elements + 8 * i, lanes, out);
      out += std::popcount(lanes);
    }
    return out;
  }

  template <class T>
  static void store(const T* values, uint64_t mask, T* elements) {
    if (mask == ~uint64_t{0}) return copy_word(values, elements);
    for (int i = 0; i < 8; ++i, mask >>= 8) {
      const auto lanes = static_cast<uint8_t>(mask);
      if (lanes != 0) store_lanes(values, lanes, elements + 8 * i);
      values += std::popcount(lanes);
    }
  }

  template <class T>
  static void expand(const T* values, uint64_t mask, float* sums) {
    for (int i = 0; i < 8; ++i, mask >>= 8) {
      const auto lanes = static_cast<uint8_t>(mask);
      _mm256_store_ps(sums + 8 * i, expand_lanes(values, lanes));
      values += std::popcount(lanes);
    }
  }

  template <class T>
  static void add(const T* values, uint64_t mask, float* sums) {
    for (int i = 0; i < 8; ++i, mask >>= 8) {
      const auto lanes = static_cast<uint8_t>(mask);
      const __m256 sum = _mm256_load_ps(sums + 8 * i);
      _mm256_store_ps(sums + 8 * i, _mm256_add_ps(sum, expand_lanes(values, lanes)));
      values += std::popcount(lanes);
    }
  }

  template <class T>
  static void widen(const T* values, uint64_t count, float* out) {
    for (uint64_t i = 0; i < count; i += 8) _mm256_storeu_ps(out + i, load_floats(values + i));
  }

  template <class T>
  static void divide(const float* sums, uint64_t count, float divisor, T* out) {
    const __m256 divisors = _mm256_set1_ps(divisor);
    for (uint64_t i = 0; i < count; i += 8)
      store_floats(_mm256_div_ps(_mm256_loadu_ps(sums + i), divisors), out + i);
  }

 private:
  static __m256i load(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  }
  static void store_vector(void* to, __m256i v) {
    _mm256_storeu_si256(static_cast<__m256i*>(to), v);
  }

  // One bit per 16-bit lane of a, then of b.
  static uint32_t byte_mask16(__m256i a, __m256i b) {
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0b11011000);
    return static_cast<uint32_t>(_mm256_movemask_epi8(bytes));
  }

  // The same for lanes that packs_epi32 has paired: it works within halves of a register, which
  // leaves groups of four lanes in the order 0 2 4 6 1 3 5 7.
  static uint32_t byte_mask(__m256i a, __m256i b) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
    return static_cast<uint32_t>(_mm256_movemask_epi8(bytes));
  }

  template <class T>
  static void copy_word(const T* from, T* to) {
    for (size_t i = 0; i < 64; i += 32 / sizeof(T)) store_vector(to + i, load(from + i));
  }

  // Eight signed bytes of a table as 32-bit lanes.
  static __m256i lane_numbers(const uint8_t* bytes) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  }

  static void compress_lanes(const float* elements, uint8_t lanes, float* out) {
    const __m256i order = lane_numbers(kLaneTables.compress[lanes].data());
    store_vector(out, _mm256_permutevar8x32_epi32(load(elements), order));
  }

  template <class T>
  static void compress_lanes(const T* elements, uint8_t lanes, T* out) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm_shuffle_epi8(load16(elements), table16(kLaneTables.compress16, lanes)));
  }

  static void store_lanes(const float* values, uint8_t lanes, float* elements) {
    const __m256i order = lane_numbers(kLaneTables.expand[lanes].data());
    const __m256 moved = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values), order);
    const __m256 old = _mm256_loadu_ps(elements);
    _mm256_storeu_ps(elements, _mm256_blendv_ps(moved, old, _mm256_castsi256_ps(order)));
  }

  template <class T>
  static void store_lanes(const T* values, uint8_t lanes, T* elements) {
    const __m128i order = table16(kLaneTables.expand16, lanes);
    const __m128i moved = _mm_shuffle_epi8(load16(values), order);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(elements),
                     _mm_blendv_epi8(moved, load16(elements), order));
  }

  static __m256 expand_lanes(const float* values, uint8_t lanes) {
    const __m256i order = lane_numbers(kLaneTables.expand[lanes].data());
    const __m256 moved = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values), order);
    return _mm256_blendv_ps(moved, _mm256_set1_ps(-0.0f), _mm256_castsi256_ps(order));
  }

  template <class T>
  static __m256 expand_lanes(const T* values, uint8_t lanes) {
    const __m128i order = table16(kLaneTables.expand16, lanes);
    const __m128i moved = _mm_shuffle_epi8(load16(values), order);
    // 0x8000 is -0.0 in both 16-bit formats.
    return to_floats<T>(_mm_blendv_epi8(moved, _mm_set1_epi16(INT16_MIN), order));
  }

  static __m128i load16(const void* from) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
  }
  static __m128i table16(const std::array<std::array<uint8_t, 16>, 256>& table, uint8_t lanes) {
    return load16(table[lanes].data());
  }

  static __m256 load_floats(const float* values) { return _mm256_loadu_ps(values); }
  template <class T>
  static __m256 load_floats(const T* values) {
    return to_floats<T>(load16(values));
  }

  template <class T>
  static __m256 to_floats(__m128i bits) {
    if constexpr (std::is_same_v<T, f16>) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }

  static void store_floats(__m256 x, float* out) { _mm256_storeu_ps(out, x); }

  static void store_floats(__m256 x, f16* out) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  static void store_floats(__m256 x, bf16* out) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i lowest = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(lowest, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i lanes = _mm256_blendv_epi8(rounded, quiet, is_nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(lanes, lanes), 0b11011000);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(packed));
  }
};

}  // namespace zen
