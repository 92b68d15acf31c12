// A small generator: everything that the simulator leaves to chance follows from a seed.
#pragma once

#include <cstdint>

namespace zen::simulator {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  // splitmix64 (Steele, Lea, Flood).
  uint64_t next() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
  }

  // Below `limit`. REQUIRES: 0 < limit <= 2^32.
  uint64_t below(uint64_t limit) { return (next() >> 32) * limit >> 32; }

 private:
  uint64_t state_;
};

}  // namespace zen::simulator
