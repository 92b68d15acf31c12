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
#include "core/words_scalar.h"

namespace zen {

struct Avx2Words {
  // REQUIRES: count == 64. As a signed integer -0.0 is the least number there is, so one minimum
  // finds out whether the word holds any; without, the zeros are the lanes equal to 0. A gradient
  // that was multiplied by a mask of zeros is full of them, so they too are rewritten by vectors.
  ZEN_INLINE static uint64_t list(float* elements, uint64_t) {
    const __m256i negative_zero = _mm256_set1_epi32(INT32_MIN);
    __m256i zero[8], least = _mm256_setzero_si256();
    for (int i = 0; i < 8; ++i) {
      const __m256i x = load(elements + 8 * i);
      zero[i] = _mm256_cmpeq_epi32(x, _mm256_setzero_si256());
      least = _mm256_min_epi32(least, x);
    }
    if (any_lane(_mm256_cmpeq_epi32(least, negative_zero))) [[unlikely]]
      for (int i = 0; i < 8; ++i) {
        const __m256i x = load(elements + 8 * i),
                      is_negative = _mm256_cmpeq_epi32(x, negative_zero);
        store_vector(elements + 8 * i, _mm256_andnot_si256(is_negative, x));
        zero[i] = _mm256_or_si256(zero[i], is_negative);
      }
    const uint64_t low =
        byte_mask(_mm256_packs_epi32(zero[0], zero[1]), _mm256_packs_epi32(zero[2], zero[3]));
    const uint64_t high =
        byte_mask(_mm256_packs_epi32(zero[4], zero[5]), _mm256_packs_epi32(zero[6], zero[7]));
    return ~(low | high << 32);
  }

  template <class T>
  ZEN_INLINE static uint64_t list(T* elements, uint64_t) {
    const __m256i negative_zero = _mm256_set1_epi16(INT16_MIN);
    __m256i zero[4], least = _mm256_setzero_si256();
    for (int i = 0; i < 4; ++i) {
      const __m256i x = load(elements + 16 * i);
      zero[i] = _mm256_cmpeq_epi16(x, _mm256_setzero_si256());
      least = _mm256_min_epi16(least, x);
    }
    if (any_lane(_mm256_cmpeq_epi16(least, negative_zero))) [[unlikely]]
      for (int i = 0; i < 4; ++i) {
        const __m256i x = load(elements + 16 * i),
                      is_negative = _mm256_cmpeq_epi16(x, negative_zero);
        store_vector(elements + 16 * i, _mm256_andnot_si256(is_negative, x));
        zero[i] = _mm256_or_si256(zero[i], is_negative);
      }
    const uint64_t low = byte_mask16(zero[0], zero[1]), high = byte_mask16(zero[2], zero[3]);
    return ~(low | high << 32);
  }

  template <class T>
  ZEN_INLINE static T* compress(const T* elements, uint64_t mask, T* out) {
    const int count = std::popcount(mask);
    if (count <= kFewValues) {
      for (int i = 0; i < kFewValues; ++i, mask &= mask - 1)
        out[i] = elements[std::countr_zero(mask) % 64];
      return out + count;
    }
    if (count == 64) {
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

  // REQUIRES: mask != 0. A few values are written without a branch on how many: the last one again
  // and again.
  template <class T>
  ZEN_INLINE static void store(const T* values, uint64_t mask, T* elements) {
    const int count = std::popcount(mask);
    if (count <= kFewValues) {
      elements[std::countr_zero(mask)] = *values;
      for (int i = 1; i < kFewValues; ++i) {
        const uint64_t next = mask & (mask - 1);
        mask = next != 0 ? next : mask;
        values += next != 0;
        elements[std::countr_zero(mask)] = *values;
      }
    } else if (count == 64) {
      copy_word(values, elements);
    } else {
      for (int i = 0; i < 8; ++i, mask >>= 8) {
        const auto lanes = static_cast<uint8_t>(mask);
        store_lanes(values, lanes, elements + 8 * i);
        values += std::popcount(lanes);
      }
    }
  }

  ZEN_INLINE static uint64_t non_zeros(const uint64_t* masks) {
    uint64_t zeros = 0;
    for (int i = 0; i < 64; i += 4) {
      const __m256i is_zero = _mm256_cmpeq_epi64(load(masks + i), _mm256_setzero_si256());
      zeros |= static_cast<uint64_t>(_mm256_movemask_pd(_mm256_castsi256_pd(is_zero))) << i;
    }
    return ~zeros;
  }

  // A few values are added without a branch on how many: behind the last one comes -0.0.
  template <class T>
  ZEN_INLINE static void add(const T* values, uint64_t mask, float* sums) {
    const int count = std::popcount(mask);
    if (count <= kFewValues) {
      alignas(32) float terms[8];
      const __m256 is_value = _mm256_castsi256_ps(
          _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)));
      _mm256_store_ps(terms,
                      _mm256_blendv_ps(_mm256_set1_ps(-0.0f), load_floats(values), is_value));
      for (int i = 0; i < kFewValues; ++i, mask &= mask - 1)
        sums[std::countr_zero(mask) % 64] += terms[i];
    } else if (count == 64) {
      for (int i = 0; i < 64; i += 8) add_vector(sums + i, load_floats(values + i));
    } else {
      for (int i = 0; i < 8; ++i, mask >>= 8) {
        const auto lanes = static_cast<uint8_t>(mask);
        add_vector(sums + 8 * i, expand_lanes(values, lanes));
        values += std::popcount(lanes);
      }
    }
  }

  template <class T>
  ZEN_INLINE static void widen(const T* values, uint64_t count, float* out) {
    for (uint64_t i = 0; i < count; i += 8) _mm256_storeu_ps(out + i, load_floats(values + i));
  }

  template <class T>
  ZEN_INLINE static void divide(const float* sums, uint64_t count, float divisor, T* out) {
    // A power of two is multiplied by its inverse instead: the same quotient, rounded alike.
    if (const float inverse = 1 / divisor; is_power_of_two(divisor) && is_power_of_two(inverse)) {
      const __m256 factors = _mm256_set1_ps(inverse);
      for (uint64_t i = 0; i < count; i += 8)
        store_floats(_mm256_mul_ps(_mm256_loadu_ps(sums + i), factors), out + i);
    } else {
      const __m256 divisors = _mm256_set1_ps(divisor);
      for (uint64_t i = 0; i < count; i += 8)
        store_floats(_mm256_div_ps(_mm256_loadu_ps(sums + i), divisors), out + i);
    }
  }

 private:
  ZEN_INLINE static __m256i load(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  }
  ZEN_INLINE static void store_vector(void* to, __m256i v) {
    _mm256_storeu_si256(static_cast<__m256i*>(to), v);
  }

  ZEN_INLINE static bool any_lane(__m256i lanes) { return _mm256_testz_si256(lanes, lanes) == 0; }

  // One bit per 16-bit lane of a, then of b.
  ZEN_INLINE static uint32_t byte_mask16(__m256i a, __m256i b) {
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0b11011000);
    return static_cast<uint32_t>(_mm256_movemask_epi8(bytes));
  }

  // The same for lanes that packs_epi32 has paired: it works within halves of a register, which
  // leaves groups of four lanes in the order 0 2 4 6 1 3 5 7.
  ZEN_INLINE static uint32_t byte_mask(__m256i a, __m256i b) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
    return static_cast<uint32_t>(_mm256_movemask_epi8(bytes));
  }

  template <class T>
  ZEN_INLINE static void copy_word(const T* from, T* to) {
    for (size_t i = 0; i < 64; i += 32 / sizeof(T)) store_vector(to + i, load(from + i));
  }

  // Normal ones of either sign.
  ZEN_INLINE static bool is_power_of_two(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    const uint32_t exponent = bits >> 23 & 0xff;
    return (bits & 0x7fffff) == 0 && exponent != 0 && exponent != 0xff;
  }

  ZEN_INLINE static void add_vector(float* sums, __m256 terms) {
    _mm256_store_ps(sums, _mm256_add_ps(_mm256_load_ps(sums), terms));
  }

  // Eight signed bytes of a table as 32-bit lanes.
  ZEN_INLINE static __m256i lane_numbers(const uint8_t* bytes) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  }

  ZEN_INLINE static void compress_lanes(const float* elements, uint8_t lanes, float* out) {
    const __m256i order = lane_numbers(kLaneTables.compress[lanes].data());
    store_vector(out, _mm256_permutevar8x32_epi32(load(elements), order));
  }

  template <class T>
  ZEN_INLINE static void compress_lanes(const T* elements, uint8_t lanes, T* out) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm_shuffle_epi8(load16(elements), table16(kLaneTables.compress16, lanes)));
  }

  ZEN_INLINE static void store_lanes(const float* values, uint8_t lanes, float* elements) {
    const __m256i order = lane_numbers(kLaneTables.expand[lanes].data());
    const __m256 moved = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values), order);
    const __m256 old = _mm256_loadu_ps(elements);
    _mm256_storeu_ps(elements, _mm256_blendv_ps(moved, old, _mm256_castsi256_ps(order)));
  }

  template <class T>
  ZEN_INLINE static void store_lanes(const T* values, uint8_t lanes, T* elements) {
    const __m128i order = table16(kLaneTables.expand16, lanes);
    const __m128i moved = _mm_shuffle_epi8(load16(values), order);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(elements),
                     _mm_blendv_epi8(moved, load16(elements), order));
  }

  ZEN_INLINE static __m128i load16(const void* from) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
  }
  ZEN_INLINE static __m128i table16(const std::array<std::array<uint8_t, 16>, 256>& table,
                                    uint8_t lanes) {
    return load16(table[lanes].data());
  }

 public:
  // The packed values at the set lanes, -0.0 at the others.
  ZEN_INLINE static __m256 expand_lanes(const float* values, uint8_t lanes) {
    const __m256i order = lane_numbers(kLaneTables.expand[lanes].data());
    const __m256 moved = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values), order);
    return _mm256_blendv_ps(moved, _mm256_set1_ps(-0.0f), _mm256_castsi256_ps(order));
  }

  template <class T>
  ZEN_INLINE static __m256 expand_lanes(const T* values, uint8_t lanes) {
    const __m128i order = table16(kLaneTables.expand16, lanes);
    const __m128i moved = _mm_shuffle_epi8(load16(values), order);
    // 0x8000 is -0.0 in both 16-bit formats.
    return to_floats<T>(_mm_blendv_epi8(moved, _mm_set1_epi16(INT16_MIN), order));
  }

  // Eight values as floats, and back.
  ZEN_INLINE static __m256 load_floats(const float* values) { return _mm256_loadu_ps(values); }
  template <class T>
  ZEN_INLINE static __m256 load_floats(const T* values) {
    return to_floats<T>(load16(values));
  }

  template <class T>
  ZEN_INLINE static __m256 to_floats(__m128i bits) {
    if constexpr (std::is_same_v<T, f16>) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }

  ZEN_INLINE static void store_floats(__m256 x, float* out) { _mm256_storeu_ps(out, x); }

  ZEN_INLINE static void store_floats(__m256 x, f16* out) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  ZEN_INLINE static void store_floats(__m256 x, bf16* out) {
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
