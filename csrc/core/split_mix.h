// SplitMix64 (Steele, Lea and Flood 2014): small, seedable and, unlike the standard distributions,
// specified. Tests and benchmarks draw from it.
#pragma once

#include <cstdint>

namespace zen {

class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }

  // Strictly between 0 and 1.
  double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }

  // Below `limit`. REQUIRES: 0 < limit <= 2^32.
  uint32_t below(uint64_t limit) { return static_cast<uint32_t>((next() >> 32) * limit >> 32); }

 private:
  uint64_t state_;
};

}  // namespace zen
