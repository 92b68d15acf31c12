// Non-zero indices of many iterations and ranks: recorded ones from a file, or drifting ones made
// up.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/imbalance.h"
#include "core/partition_hash.h"
#include "index_patterns.h"

namespace zen {

using Iteration = std::vector<IndexSet>;  // one set per rank

// Reads recorded sets, one per line:  ITERATION RANK INDEX INDEX ...
// Iterations and ranks count from 0 and ascend; indices are elements, in any order. Lines that are
// empty or start with # are skipped. Throws std::runtime_error naming the line.
inline std::vector<Iteration> read_index_sets(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open index sets " + path);
  std::vector<Iteration> iterations;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    size_t iteration = 0, rank = 0;
    IndexSet indices;
    fields >> iteration >> rank;
    if (rank == 0 && iteration == iterations.size()) iterations.emplace_back();
    const bool in_order =
        !fields.fail() && iteration + 1 == iterations.size() && rank == iterations.back().size();
    for (uint32_t index = 0; fields >> index;) indices.push_back(index);
    if (!in_order || !fields.eof())
      throw std::runtime_error(path + ":" + std::to_string(number) +
                               ": expected ITERATION RANK INDEX... with ascending ranks");
    iterations.back().push_back(sorted_unique(std::move(indices)));
  }
  return iterations;
}

// A vocabulary of 20,000 rows of `dim` elements, sorted by frequency, fitted to the paper's NMT
// (density 2.5 %, densification 24.6 at 128 ranks). A batch draws most of its tokens from all rows;
// the rest from a window of neighbouring rows, the subject of the text just read, which walks on.
inline std::vector<Iteration> drifting_zipf(int iterations, int ranks, uint32_t dim,
                                            uint64_t seed) {
  constexpr uint32_t kRows = 20'000, kDraws = 1'030, kWindow = 2'000;
  const ZipfRows rows(kRows, 1.149);
  SplitMix64 random(seed);
  std::vector<Iteration> result;
  double centre = kRows / 2;
  for (int iteration = 0; iteration < iterations; ++iteration) {
    centre += (random.uniform() - 0.5) * kWindow;
    centre = std::min<double>(std::max<double>(centre, 0), kRows - kWindow);
    Iteration sets;
    for (int rank = 0; rank < ranks; ++rank) {
      IndexSet drawn = rows.batch(kDraws * 17 / 20, random.next());
      for (uint32_t token = 0; token < kDraws * 3 / 20; ++token)
        drawn.push_back(static_cast<uint32_t>(centre) + random.below(kWindow));
      sets.push_back(expand_rows(sorted_unique(std::move(drawn)), dim));
    }
    result.push_back(std::move(sets));
  }
  return result;
}

// The largest index of each of n equal parts of a set but the last: section 3.1's thresholds.
inline IndexSet thresholds(const IndexSet& set, int n) {
  IndexSet bounds;
  for (int part = 1; part < n; ++part)
    bounds.push_back(set[set.size() * static_cast<size_t>(part) / static_cast<size_t>(n)]);
  return bounds;
}

// Loads of the n owners that `owner_of` deals a set to.
template <class OwnerOf>
std::vector<uint64_t> loads_of(const IndexSet& set, int n, OwnerOf&& owner_of) {
  std::vector<uint64_t> loads(static_cast<size_t>(n), 0);
  for (const uint32_t index : set) ++loads[static_cast<size_t>(owner_of(index))];
  return loads;
}

// Definition 8: push imbalance, the worst over the ranks.
template <class OwnerOf>
double push_imbalance(const Iteration& sets, int n, OwnerOf&& owner_of) {
  double worst = 1;
  for (const IndexSet& set : sets) worst = std::max(worst, imbalance(loads_of(set, n, owner_of)));
  return worst;
}

// Definition 8: pull imbalance, that of the union.
template <class OwnerOf>
double pull_imbalance(const Iteration& sets, int n, OwnerOf&& owner_of) {
  return imbalance(loads_of(union_of(sets), n, owner_of));
}

inline int owner_by_thresholds(const IndexSet& bounds, uint32_t index) {
  return static_cast<int>(std::upper_bound(bounds.begin(), bounds.end(), index) - bounds.begin());
}

}  // namespace zen
