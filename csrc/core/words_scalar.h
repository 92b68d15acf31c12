// What the kernels do to one word, in plain C++: the reference for every other instruction set.
//
// A word's mask has a bit for each listed element; its packed values are the listed elements in
// order. select compresses words, merge and decode_write expand them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/dtype.h"

namespace zen {

// The word kernels are many and small: compilers that count instructions give up inlining too
// early.
#define ZEN_INLINE __attribute__((always_inline)) inline

// A kernel may read or write this far behind the packed values it was given. Two vectors of any
// instruction set in use.
constexpr size_t kOvershootBytes = 64;

// Up to this many values in a word are moved one by one.
constexpr int kFewValues = 4;

// Whether a kernel that reads packed values up to `values` may read whole vectors, if the memory
// ends at `end`.
template <class T>
bool may_overshoot(const T* values, const std::byte* end) {
  return end - reinterpret_cast<const std::byte*>(values) >=
         static_cast<std::ptrdiff_t>(kOvershootBytes);
}

struct ScalarWords {
  // Mask of the elements x != 0, NaN included. Rewrites -0.0 to +0.0: ranks that hold different
  // zeros would otherwise end with different bits. Tests bits, not values, so that the processor's
  // denormals-are-zero mode changes nothing.
  template <class T>
  static uint64_t list(T* elements, uint64_t count) {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;
    constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
    uint64_t mask = 0;
    for (uint64_t elem = 0; elem < count; ++elem) {
      const auto bits = std::bit_cast<Bits>(elements[elem]);
      if ((bits & kMagnitude) != 0)
        mask |= uint64_t{1} << elem;
      else if (bits != 0)
        elements[elem] = T{};
    }
    return mask;
  }

  // Appends the listed elements to `out` and returns its new end.
  template <class T>
  static T* compress(const T* elements, uint64_t mask, T* out) {
    for (; mask != 0; mask &= mask - 1) *out++ = elements[std::countr_zero(mask)];
    return out;
  }

  // Writes the packed values to the listed elements and leaves the others alone.
  template <class T>
  static void store(const T* values, uint64_t mask, T* elements) {
    for (; mask != 0; mask &= mask - 1) elements[std::countr_zero(mask)] = *values++;
  }

  // A bit for each of 64 masks that is not 0.
  static uint64_t non_zeros(const uint64_t* masks) {
    uint64_t bits = 0;
    for (int i = 0; i < 64; ++i) bits |= uint64_t{masks[i] != 0} << i;
    return bits;
  }

  // Adds the packed values to the listed elements.
  template <class T>
  static void add(const T* values, uint64_t mask, float* sums) {
    for (; mask != 0; mask &= mask - 1) sums[std::countr_zero(mask)] += to_float(*values++);
  }

  template <class T>
  static void widen(const T* values, uint64_t count, float* out) {
    for (uint64_t i = 0; i < count; ++i) out[i] = to_float(values[i]);
  }

  // The one rounding of a merge. A true division: an exact quotient stays exact.
  template <class T>
  static void divide(const float* sums, uint64_t count, float divisor, T* out) {
    for (uint64_t i = 0; i < count; ++i) out[i] = from_float<T>(sums[i] / divisor);
  }
};

}  // namespace zen
