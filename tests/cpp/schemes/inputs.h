// Gradients to synchronise, and what the answer must be.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace zen::scheme_test {

using Values = std::vector<float>;
using Inputs = std::vector<Values>;  // by rank; every value is one that the dtype holds

enum class Pattern {
  zeros,
  scattered_thin,  // 0.1 %
  scattered,       // 5 %
  half,
  dense,
  rows,          // runs of 48 elements, other ones on every rank
  popular_rows,  // the same, drawn by Zipf's law: most of them on several ranks
  one_range,     // everything in the first eighth
  cancelling,    // ranks come in pairs that hold x and -x
  non_finite,    // NaN and infinities among the values
  integers,      // small enough for every sum to be exact in every dtype
};

constexpr Pattern kPatterns[] = {
    Pattern::zeros,      Pattern::scattered_thin, Pattern::scattered,    Pattern::half,
    Pattern::dense,      Pattern::rows,           Pattern::popular_rows, Pattern::one_range,
    Pattern::cancelling, Pattern::non_finite,     Pattern::integers};

inline const char* name_of(Pattern pattern) {
  constexpr const char* kNames[] = {"zeros",      "scattered_thin", "scattered",    "half",
                                    "dense",      "rows",           "popular_rows", "one_range",
                                    "cancelling", "non_finite",     "integers"};
  return kNames[static_cast<size_t>(pattern)];
}

inline float rounded(float x, DType dtype) {
  return with_type(dtype, [&]<class T>(T) { return to_float(from_float<T>(x)); });
}

// One rank's gradient. The same seed makes the same gradient.
class InputMaker {
 public:
  InputMaker(size_t numel, DType dtype, uint64_t seed)
      : random_(seed), values_(numel), dtype_(dtype) {}

  Values make(Pattern pattern) {
    switch (pattern) {
      case Pattern::zeros:
        break;
      case Pattern::scattered_thin:
        scatter(0.001, values_.size());
        break;
      case Pattern::scattered:
      case Pattern::cancelling:
        scatter(0.05, values_.size());
        break;
      case Pattern::half:
        scatter(0.5, values_.size());
        break;
      case Pattern::dense:
        scatter(1, values_.size());
        break;
      case Pattern::rows:
        draw_rows(1);
        break;
      case Pattern::popular_rows:
        draw_rows(4);
        break;
      case Pattern::one_range:
        scatter(0.5, values_.size() / 8);
        break;
      case Pattern::non_finite:
        scatter(0.1, values_.size());
        spoil();
        break;
      case Pattern::integers:
        for (float& value : values_)
          if (uniform() < 0.3) value = static_cast<float>(std::floor(uniform() * 17) - 8);
        break;
    }
    return values_;
  }

 private:
  static constexpr size_t kRow = 48;  // not a multiple of a word

  double uniform() { return std::uniform_real_distribution<double>()(random_); }
  float value() { return rounded(std::normal_distribution<float>()(random_), dtype_); }

  void scatter(double density, size_t end) {
    for (size_t elem = 0; elem < end; ++elem)
      if (uniform() < density) values_[elem] = value();
  }

  // A tenth as many draws as there are rows; `skew` = 1 draws evenly.
  void draw_rows(double skew) {
    const size_t rows = (values_.size() + kRow - 1) / kRow;
    for (size_t draw = 0; draw < (rows + 9) / 10; ++draw) {
      const auto row = static_cast<size_t>(std::pow(uniform(), skew) * static_cast<double>(rows));
      for (size_t elem = row * kRow; elem < std::min((row + 1) * kRow, values_.size()); ++elem)
        values_[elem] = value();
    }
  }

  void spoil() {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    const float bad[] = {kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), -0.0f};
    for (float& value : values_)
      if (uniform() < 0.02) value = bad[random_() % 4];
  }

  std::mt19937_64 random_;
  Values values_;
  DType dtype_;
};

inline Inputs make_inputs(Pattern pattern, int ranks, size_t numel, DType dtype, uint64_t seed) {
  Inputs inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    if (pattern == Pattern::cancelling && rank % 2 == 1) {
      inputs.push_back(inputs.back());
      for (float& value : inputs.back()) value = -value;
    } else {
      inputs.push_back(InputMaker(numel, dtype, seed * 1000 + rank).make(pattern));
    }
  }
  return inputs;
}

using Bytes = std::vector<std::byte>;

inline Bytes pack(const Values& values, DType dtype) {
  Bytes bytes(values.size() * size_of(dtype));
  with_type(dtype, [&]<class T>(T) {
    for (size_t i = 0; i < values.size(); ++i) {
      const T value = from_float<T>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return bytes;
}

inline Values unpack(const Bytes& bytes, DType dtype) {
  Values values(bytes.size() / size_of(dtype));
  with_type(dtype, [&]<class T>(T) {
    for (size_t i = 0; i < values.size(); ++i) {
      T value;
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      values[i] = to_float(value);
    }
  });
  return values;
}

inline uint64_t count_nonzeros(const Values& values) {
  return static_cast<uint64_t>(std::ranges::count_if(values, [](float x) { return x != 0; }));
}

// Elements that any rank holds: the union, which a pull carries.
inline uint64_t count_union(const Inputs& inputs) {
  uint64_t count = 0;
  for (size_t elem = 0; elem < inputs[0].size(); ++elem)
    count += std::ranges::any_of(inputs, [&](const Values& values) { return values[elem] != 0; });
  return count;
}

// Half the distance between two neighbouring values of the dtype near x, at most.
inline double rounding_error(double x, DType dtype) {
  switch (dtype) {
    case DType::f16:
      return std::max(std::ldexp(std::abs(x), -11), std::ldexp(1, -25));
    case DType::bf16:
      return std::ldexp(std::abs(x), -8);
    case DType::f32:
      break;
  }
  return 0;  // the division's rounding is one of the n that the bound on the sum allows
}

inline std::string offence(size_t elem, double expected, double actual, double allowed) {
  std::ostringstream text;
  text.precision(9);
  text << "element " << elem << " is " << actual << ", expected " << expected << " within "
       << allowed;
  return text.str();
}

// Empty if every element is the sum in float64 over the divisor, within n * eps * sum|x| plus the
// final rounding; otherwise the first offender. With `exact`, not the least error is allowed.
inline std::string compare_with_oracle(const Inputs& inputs, const Values& result, DType dtype,
                                       float divisor, bool exact) {
  const double eps = std::ldexp(1, -24) * static_cast<double>(inputs.size());
  for (size_t elem = 0; elem < result.size(); ++elem) {
    double sum = 0, magnitude = 0;
    for (const Values& values : inputs) sum += values[elem], magnitude += std::abs(values[elem]);
    const double expected =
        exact ? rounded(static_cast<float>(sum) / divisor, dtype) : sum / divisor;
    const double allowed =
        exact ? 0 : eps * magnitude / divisor + 1.001 * rounding_error(expected, dtype);
    const double actual = result[elem];
    const bool right = std::isnan(expected)   ? std::isnan(actual)
                       : std::isinf(expected) ? actual == expected
                                              : std::abs(actual - expected) <= allowed;
    if (!right) return offence(elem, expected, actual, allowed);
  }
  return {};
}

}  // namespace zen::scheme_test
