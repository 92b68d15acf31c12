// Gradients for tests: the patterns that sparse training produces, and the ones nobody expects.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/gradient.h"

namespace zen::test {

enum class Pattern { uniform, rows, zipf_rows, one_range, negative_zeros, special };

constexpr Pattern kPatterns[] = {Pattern::uniform,   Pattern::rows,           Pattern::zipf_rows,
                                 Pattern::one_range, Pattern::negative_zeros, Pattern::special};
constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16};

inline std::string name_of(Pattern pattern) {
  constexpr const char* kNames[] = {"uniform",   "rows",           "zipf_rows",
                                    "one_range", "negative_zeros", "special"};
  return kNames[static_cast<int>(pattern)];
}

// A gradient that owns exactly its bytes, so that a sanitizer sees the first byte behind them.
class TestGradient {
 public:
  TestGradient(DType dtype, uint64_t numel)
      : dtype_(dtype), numel_(numel), bytes_(numel * size_of(dtype)) {}

  Gradient view() { return {{bytes_.data(), bytes_.size(), nullptr}, dtype_, numel_}; }
  DType dtype() const { return dtype_; }
  uint64_t numel() const { return numel_; }

  uint32_t bits(uint64_t elem) const {
    uint32_t bits = 0;
    std::memcpy(&bits, bytes_.data() + elem * size_of(dtype_), size_of(dtype_));
    return bits;
  }
  void set_bits(uint64_t elem, uint32_t bits) {
    std::memcpy(bytes_.data() + elem * size_of(dtype_), &bits, size_of(dtype_));
  }
  void set(uint64_t elem, float x);

 private:
  DType dtype_;
  uint64_t numel_;
  std::vector<std::byte> bytes_;
};

inline uint32_t to_bits(DType dtype, float x) {
  return with_type(dtype, [x]<class T>(T) -> uint32_t {
    if constexpr (sizeof(T) == 4)
      return std::bit_cast<uint32_t>(x);
    else
      return from_float<T>(x).bits;
  });
}

inline float from_bits(DType dtype, uint32_t bits) {
  switch (dtype) {
    case DType::f16:
      return to_float(f16{static_cast<uint16_t>(bits)});
    case DType::bf16:
      return to_float(bf16{static_cast<uint16_t>(bits)});
    case DType::f32:
      break;
  }
  return std::bit_cast<float>(bits);
}

inline void TestGradient::set(uint64_t elem, float x) {
  set_bits(elem, to_bits(dtype_, x));
}

// Small integers: sums of 100 of them are exact in float16 and bfloat16.
inline float small_integer(std::mt19937_64& random) {
  const auto magnitude = static_cast<float>(1 + random() % 2);
  return random() % 2 == 0 ? magnitude : -magnitude;
}

inline float special_value(std::mt19937_64& random) {
  constexpr float kValues[] = {std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN(),
                               -0.0f,
                               1e-40f,
                               3.0f};
  return kValues[random() % std::size(kValues)];
}

// About `density` of the elements are not zero.
inline TestGradient make_gradient(DType dtype, uint64_t numel, Pattern pattern, double density,
                                  uint64_t seed) {
  constexpr uint64_t kRow = 128;
  TestGradient gradient(dtype, numel);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  const auto limit = static_cast<uint64_t>(std::ceil(density * static_cast<double>(numel)));
  bool row_is_set = false;
  for (uint64_t elem = 0; elem < numel; ++elem) {
    if (elem % kRow == 0) {
      const double rank = static_cast<double>(elem / kRow) + 1;
      const double odds =
          pattern == Pattern::zipf_rows && density < 1 ? 8 * density / rank : density;
      row_is_set = uniform(random) < odds;
    }
    const bool in_row = pattern == Pattern::rows || pattern == Pattern::zipf_rows;
    const bool set = pattern == Pattern::one_range ? elem < limit
                     : in_row                      ? row_is_set
                                                   : uniform(random) < density;
    if (!set) continue;
    gradient.set(elem, pattern == Pattern::negative_zeros ? -0.0f
                       : pattern == Pattern::special      ? special_value(random)
                                                          : small_integer(random));
  }
  return gradient;
}

}  // namespace zen::test
