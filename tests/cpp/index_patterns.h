// Sets of non-zero indices with the shapes that gradients have, each ascending and without
// duplicates, the same on every platform for a given seed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/split_mix.h"

namespace zen {

using IndexSet = std::vector<uint32_t>;

// Every element with probability `density`.
inline IndexSet uniform_indices(uint32_t numel, double density, uint64_t seed) {
  IndexSet indices;
  if (density <= 0) return indices;
  SplitMix64 random(seed);
  const double log_gap = density < 1 ? std::log1p(-density) : -1e300;
  double position = std::floor(std::log1p(-random.uniform()) / log_gap);
  for (; position < numel; position += 1 + std::floor(std::log1p(-random.uniform()) / log_gap))
    indices.push_back(static_cast<uint32_t>(position));
  return indices;
}

// `count` consecutive elements from `first`: all in one of n equal ranges.
inline IndexSet run_of_indices(uint32_t first, uint32_t count) {
  IndexSet indices(count);
  for (uint32_t entry = 0; entry < count; ++entry) indices[entry] = first + entry;
  return indices;
}

inline IndexSet strided_indices(uint32_t first, uint32_t count, uint32_t stride) {
  IndexSet indices(count);
  for (uint32_t entry = 0; entry < count; ++entry) indices[entry] = first + entry * stride;
  return indices;
}

inline IndexSet sorted_unique(IndexSet indices) {
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return indices;
}

// Draws row numbers of a vocabulary sorted by frequency: P(row) is proportional to
// (row + 2.7)^-exponent, the Zipf-Mandelbrot law of words.
class ZipfRows {
 public:
  ZipfRows(uint32_t rows, double exponent) : cumulative_(rows) {
    double sum = 0;
    for (uint32_t row = 0; row < rows; ++row)
      cumulative_[row] = sum += std::pow(row + 2.7, -exponent);
  }

  uint32_t draw(SplitMix64& random) const {
    const double at = random.uniform() * cumulative_.back();
    return static_cast<uint32_t>(std::upper_bound(cumulative_.begin(), cumulative_.end(), at) -
                                 cumulative_.begin());
  }

  // The distinct rows of a batch of `draws` tokens.
  IndexSet batch(uint32_t draws, uint64_t seed) const {
    SplitMix64 random(seed);
    IndexSet rows(draws);
    for (uint32_t& row : rows) row = draw(random);
    return sorted_unique(std::move(rows));
  }

 private:
  std::vector<double> cumulative_;
};

// The elements of whole rows of `dim` elements.
inline IndexSet expand_rows(const IndexSet& rows, uint32_t dim) {
  IndexSet indices;
  indices.reserve(rows.size() * dim);
  for (const uint32_t row : rows)
    for (uint32_t element = 0; element < dim; ++element) indices.push_back(row * dim + element);
  return indices;
}

inline IndexSet union_of(const std::vector<IndexSet>& sets) {
  IndexSet all;
  for (const IndexSet& set : sets) all.insert(all.end(), set.begin(), set.end());
  return sorted_unique(std::move(all));
}

}  // namespace zen
