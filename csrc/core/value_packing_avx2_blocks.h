// How the AVX2 kernels take a block of values apart and put it together again: the exponents as 64
// bytes in two registers, the fractions as they lie in a body. Included between ZEN_BEGIN_AVX2 and
// ZEN_END_AVX2, behind its includer's own includes.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "core/value_packing_chunk.h"

namespace zen::packing {
namespace {

// One byte for each of a block's 64 values, in order.
struct Bytes {
  __m256i half[2];
};

__m256i load(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

void store(std::byte* at, __m256i bytes) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), bytes);
}

uint64_t load_word(const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

void store_word(std::byte* at, uint64_t word) {
  std::memcpy(at, &word, sizeof(word));
}

__m256i set1(int byte) {
  return _mm256_set1_epi8(static_cast<char>(byte));
}

// `bits` where the mask has ones, `other` elsewhere.
__m256i blend_bits(__m256i mask, __m256i bits, __m256i other) {
  return _mm256_or_si256(_mm256_and_si256(mask, bits), _mm256_andnot_si256(mask, other));
}

// Bit `bit` of each of the 64 bytes.
template <int bit>
uint64_t plane_of(const Bytes& bytes) {
  const auto low =
      static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_slli_epi16(bytes.half[0], 7 - bit)));
  const auto high =
      static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_slli_epi16(bytes.half[1], 7 - bit)));
  return low | uint64_t{high} << 32;
}

// Bytes of 0xff where the plane has ones. `half` is 0 or 1.
__m256i spread(__m256i plane, int half) {
  const __m256i byte_of_bit =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  const __m256i copies = _mm256_shuffle_epi8(plane, _mm256_add_epi8(byte_of_bit, set1(4 * half)));
  return _mm256_cmpeq_epi8(_mm256_and_si256(copies, bit), bit);
}

// The low bytes of 32 words of 16 bits, in order; and the high ones.
__m256i low_bytes(__m256i a, __m256i b) {
  const __m256i low = _mm256_set1_epi16(0xff);
  const __m256i packed = _mm256_packus_epi16(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
  return _mm256_permute4x64_epi64(packed, 0xd8);
}

__m256i high_bytes(__m256i a, __m256i b) {
  const __m256i packed = _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
  return _mm256_permute4x64_epi64(packed, 0xd8);
}

// The inverse: writes 32 words of 16 bits.
void store_words(std::byte* out, __m256i low, __m256i high) {
  const __m256i a = _mm256_unpacklo_epi8(low, high), b = _mm256_unpackhi_epi8(low, high);
  store(out, _mm256_permute2x128_si256(a, b, 0x20));
  store(out + 32, _mm256_permute2x128_si256(a, b, 0x31));
}

// A block's values as 16-bit words, split in low and high bytes.
struct WordBytes {
  Bytes low, high;
};

WordBytes load_words(const std::byte* values) {
  WordBytes bytes;
  for (int half = 0; half < 2; ++half) {
    const __m256i a = load(values + 64 * half), b = load(values + 64 * half + 32);
    bytes.low.half[half] = low_bytes(a, b);
    bytes.high.half[half] = high_bytes(a, b);
  }
  return bytes;
}

// How a dtype's block splits into exponents and fractions, and is joined again.
template <DType>
struct Block;

template <>
struct Block<DType::bf16> {
  static Bytes exponents_of(const WordBytes& bytes) {
    Bytes exponents;
    for (int half = 0; half < 2; ++half) {  // seven bits of the high byte, one of the low
      const __m256i upper = _mm256_add_epi8(bytes.high.half[half], bytes.high.half[half]);
      const __m256i lower = _mm256_and_si256(_mm256_srli_epi16(bytes.low.half[half], 7), set1(1));
      exponents.half[half] = _mm256_or_si256(upper, lower);
    }
    return exponents;
  }

  static Bytes exponents(const std::byte* values) { return exponents_of(load_words(values)); }

  static Bytes split(const std::byte* values, std::byte* fractions) {
    const WordBytes bytes = load_words(values);
    for (int half = 0; half < 2; ++half)
      store(fractions + 32 * half,
            blend_bits(set1(0x80), bytes.high.half[half], bytes.low.half[half]));
    return exponents_of(bytes);
  }

  static void join(const Bytes& exponents, const std::byte* fractions, std::byte* values) {
    for (int half = 0; half < 2; ++half) {
      const __m256i exponent = exponents.half[half], fraction = load(fractions + 32 * half);
      const __m256i low = blend_bits(set1(0x80), _mm256_slli_epi16(exponent, 7), fraction);
      const __m256i high = blend_bits(set1(0x80), fraction, _mm256_srli_epi16(exponent, 1));
      store_words(values + 64 * half, low, high);
    }
  }
};

template <>
struct Block<DType::f16> {
  static Bytes exponents_of(const WordBytes& bytes) {
    Bytes exponents;
    for (int half = 0; half < 2; ++half)
      exponents.half[half] =
          _mm256_and_si256(_mm256_srli_epi16(bytes.high.half[half], 2), set1(0x1f));
    return exponents;
  }

  static Bytes exponents(const std::byte* values) { return exponents_of(load_words(values)); }

  static Bytes split(const std::byte* values, std::byte* fractions) {
    const WordBytes bytes = load_words(values);
    store(fractions, bytes.low.half[0]);
    store(fractions + 32, bytes.low.half[1]);
    store_word(fractions + 64, plane_of<0>(bytes.high));
    store_word(fractions + 72, plane_of<1>(bytes.high));
    store_word(fractions + 80, plane_of<7>(bytes.high));
    return exponents_of(bytes);
  }

  static void join(const Bytes& exponents, const std::byte* fractions, std::byte* values) {
    __m256i planes[3];
    for (int plane = 0; plane < 3; ++plane)
      planes[plane] =
          _mm256_set1_epi64x(static_cast<int64_t>(load_word(fractions + 64 + 8 * plane)));
    for (int half = 0; half < 2; ++half) {
      const __m256i exponent = _mm256_and_si256(exponents.half[half], set1(0x1f));
      __m256i high = _mm256_slli_epi16(exponent, 2);
      high = _mm256_or_si256(high, _mm256_and_si256(spread(planes[0], half), set1(0x01)));
      high = _mm256_or_si256(high, _mm256_and_si256(spread(planes[1], half), set1(0x02)));
      high = _mm256_or_si256(high, _mm256_and_si256(spread(planes[2], half), set1(0x80)));
      store_words(values + 64 * half, load(fractions + 32 * half), high);
    }
  }
};

template <>
struct Block<DType::f32> {
  // The exponents of 32 values; packing leaves groups of four bytes out of order.
  static __m256i exponents_of(const __m256i v[4]) {
    const __m256i mask = _mm256_set1_epi32(0xff), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i e[4];
    for (int i = 0; i < 4; ++i) e[i] = _mm256_and_si256(_mm256_srli_epi32(v[i], 23), mask);
    const __m256i packed =
        _mm256_packus_epi16(_mm256_packus_epi32(e[0], e[1]), _mm256_packus_epi32(e[2], e[3]));
    return _mm256_permutevar8x32_epi32(packed, order);
  }

  static Bytes exponents(const std::byte* values) {
    Bytes exponents;
    for (int half = 0; half < 2; ++half) {
      const std::byte* in = values + 128 * half;
      const __m256i v[4] = {load(in), load(in + 32), load(in + 64), load(in + 96)};
      exponents.half[half] = exponents_of(v);
    }
    return exponents;
  }

  // Eight fractions as 24 bytes. Writes four bytes more.
  static void store_fractions(__m256i v, std::byte* out) {
    const __m256i three_of_four =
        _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,  //
                         0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const __m256i fraction = blend_bits(_mm256_set1_epi32(0x7fffff), v, _mm256_srli_epi32(v, 8));
    const __m256i bytes = _mm256_shuffle_epi8(fraction, three_of_four);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(bytes));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 12), _mm256_extracti128_si256(bytes, 1));
  }

  static Bytes split(const std::byte* values, std::byte* fractions) {
    Bytes exponents;
    for (int half = 0; half < 2; ++half) {
      __m256i v[4];
      for (int i = 0; i < 4; ++i) {
        v[i] = load(values + 128 * half + 32 * i);
        store_fractions(v[i], fractions + 96 * half + 24 * i);
      }
      exponents.half[half] = exponents_of(v);
    }
    return exponents;
  }

  // Reads 28 bytes at `in`.
  static __m256i load_fractions(const std::byte* in) {
    const __m256i four_of_three =
        _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1,  //
                         0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
    const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 12));
    return _mm256_shuffle_epi8(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1),
                               four_of_three);
  }

  static void join(const Bytes& exponents, const std::byte* fractions, std::byte* values) {
    alignas(32) std::byte exponent_bytes[64];
    store(exponent_bytes, exponents.half[0]);
    store(exponent_bytes + 32, exponents.half[1]);
    for (int i = 0; i < 8; ++i) {
      const __m256i fraction = load_fractions(fractions + 24 * i);
      const __m256i exponent = _mm256_cvtepu8_epi32(
          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(exponent_bytes + 8 * i)));
      // The sign sits right above the mantissa: doubling the upper half moves both into place.
      const __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(fraction, 23), 31);
      const __m256i mantissa = _mm256_and_si256(fraction, _mm256_set1_epi32(0x7fffff));
      store(values + 32 * i,
            _mm256_or_si256(_mm256_or_si256(sign, mantissa), _mm256_slli_epi32(exponent, 23)));
    }
  }
};

}  // namespace
}  // namespace zen::packing
