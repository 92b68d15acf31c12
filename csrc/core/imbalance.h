// How evenly owners are loaded: Definition 8 of the ZEN paper, and what to expect of a hash.
#pragma once

#include <cstdint>
#include <span>

namespace zen {

// Largest load over the mean: 1 is perfect, n is everything on one owner. 1 if there is no load.
double imbalance(std::span<const uint64_t> loads);

// Expected imbalance of `nonzeros` elements in units that a hash gives to n owners:
//   1 + sqrt(2 ln n) * sqrt(n * unit / nonzeros),
// where `unit` is the size-weighted number of non-zeros in a unit, sum m^2 / sum m (1 for hashed
// elements, at most 64 for words). Theorem 2 is the case unit = 1, with its constant. Means over
// seeds stay at or below it up to 2; single sets exceed it by a little. For the words that a hashed
// Placement deals it is an upper bound.
double expected_imbalance(int n, double nonzeros, double unit);

}  // namespace zen
