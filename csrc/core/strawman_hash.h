// Algorithm 3 of the ZEN paper: the strawman with one hash function. It loses gradients, and is
// here to show how many: two indices with the same slot overwrite each other unnoticed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/coo_list.h"

namespace zen {

// Memory of n rows of r slots. h maps an index to [0, n * r): row h / r, slot h % r.
struct StrawmanHash {
  int n = 1;
  uint64_t r = 0;     // n * r is at most 2^32
  uint32_t seed = 0;  // of h
  int threads = 1;
};

// One list per partition, in slot order. Which of several colliding indices survives depends on the
// interleaving of the threads; how many survive does not. REQUIRES: as insert_indices.
template <class Index>
std::vector<CooList<Index>> strawman_hash(std::span<const Index> I, const Gradient& G,
                                          const StrawmanHash& hash);

// Expected share of the indices lost at `load` indices per slot: 1 - (1 - e^-load) / load.
double expected_strawman_loss(double load);

}  // namespace zen
