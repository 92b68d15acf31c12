// How much of a range of a gradient is listed, in every unit that an encoding counts. Estimates are
// fractions, so these are doubles.
#pragma once

#include <cstdint>

namespace zen {

constexpr uint64_t kBlockWords = 4;  // a block is 256 elements, as in the encoding `blocks`

struct Counts {
  double elements = 0;
  double words = 0;       // with at least one listed element
  double full_words = 0;  // of which every element is listed
  double blocks = 0;      // with at least one listed element

  Counts& operator+=(const Counts& other) {
    elements += other.elements;
    words += other.words;
    full_words += other.full_words;
    blocks += other.blocks;
    return *this;
  }
  friend Counts operator+(Counts a, const Counts& b) { return a += b; }
  friend Counts operator*(Counts counts, double factor) {
    return {counts.elements * factor, counts.words * factor, counts.full_words * factor,
            counts.blocks * factor};
  }
};

}  // namespace zen
