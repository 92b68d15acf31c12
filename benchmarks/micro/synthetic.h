// Gradients of a given density and pattern, made quickly.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "core/buffer.h"
#include "core/dtype.h"
#include "core/gradient.h"
#include "core/split_mix.h"

namespace zen::bench {

constexpr uint64_t kRowElems = 512;  // a row of an embedding

struct Pattern {
  std::string name;
  uint64_t run = 1;  // elements that are zero or not together
};

inline Pattern uniform_pattern() {
  return {"uniform", 1};
}
inline Pattern row_pattern() {
  return {"rows", kRowElems};
}

template <class T>
uint64_t scatter(T* elements, uint64_t numel, const Pattern& pattern, double density,
                 uint64_t seed) {
  SplitMix64 random(seed);
  const double log_miss = std::log1p(-density);
  const uint64_t runs = numel / pattern.run;
  uint64_t nonzeros = 0;
  // The gap to the next run that is set is geometric.
  for (uint64_t run = 0;; ++run) {
    const double gap = std::log(random.uniform()) / log_miss;
    if (gap >= static_cast<double>(runs - run)) return nonzeros;
    run += static_cast<uint64_t>(gap);
    if (run >= runs) return nonzeros;
    for (uint64_t elem = run * pattern.run; elem < (run + 1) * pattern.run; ++elem)
      elements[elem] = from_float<T>(0.5f + static_cast<float>(random.next() >> 40));
    nonzeros += pattern.run;
  }
}

// Overwrites the gradient and returns its non-zeros. REQUIRES: 0 < density < 1.
inline uint64_t make_sparse(const Gradient& gradient, const Pattern& pattern, double density,
                            uint64_t seed) {
  std::memset(gradient.data.data, 0, gradient.data.bytes);
  return with_type(gradient.dtype, [&]<class T>(T) {
    return scatter(reinterpret_cast<T*>(gradient.data.data), gradient.numel, pattern, density,
                   seed);
  });
}

// Bytes below which no lossless code of positions and raw values can go on average.
inline double entropy_bytes(const Gradient& gradient, const Pattern& pattern, uint64_t nonzeros) {
  const double runs = static_cast<double>(gradient.numel / pattern.run);
  const double p = static_cast<double>(nonzeros / pattern.run) / runs;
  const double bits = p <= 0 || p >= 1 ? 0 : -p * std::log2(p) - (1 - p) * std::log2(1 - p);
  return runs * bits / 8 + static_cast<double>(nonzeros * size_of(gradient.dtype));
}

}  // namespace zen::bench
