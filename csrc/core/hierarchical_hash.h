// Algorithm 1 of the ZEN paper: the hierarchical hash that splits a sparse gradient over n servers.
//
// For every non-zero index, in parallel: h0 picks the partition p; h1, h2, ..., hk are tried in
// turn as a slot of p's parallel memory (r1 slots), and the first free one is taken; if all are
// taken, the index is appended to p's serial memory (r2 slots) through the atomic counter c[p].
// What the memory holds, with the values of G, is the push: one coordinate list per server.
//
// Two things differ from the paper's text, both because the text loses gradients:
// * A slot is claimed by compare-and-swap. "Read after write" (technique 4: write, read back, go on
//   if it is still yours) loses one of two indices in 4 of the 20 interleavings of two threads: a
//   tests, b tests, a writes, a reads back, b writes, b reads back.
// * The serial memory is checked; overflow throws, and says how large r2 must be.
// docs/paper-algorithms.md has the rest of the comparison.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/coo_list.h"
#include "core/error.h"
#include "core/partition_hash.h"

namespace zen {

// The parameters of Algorithm 1, under its names.
struct HierarchicalHash {
  PartitionHash h0;         // the same on all ranks
  std::vector<uint32_t> H;  // seeds of h1 ... hk; each rank may have its own
  uint64_t r1 = 0;          // slots of one partition's parallel memory, at most 2^32
  uint64_t r2 = 0;          // slots of one partition's serial memory
  int threads = 1;
};

// Parameters for a set I of `nnz` indices: k functions derived from `seed`, parallel memory of
// r1_ratio * nnz slots over all partitions together, and serial memory for the expected share with
// room for its spread (never less than 64 slots). The paper's best: k = 3 or 4, r1_ratio = 2.
HierarchicalHash make_hierarchical_hash(PartitionHash h0, uint32_t seed, int k, uint64_t nnz,
                                        double r1_ratio, int threads);

// Expected share of the balls that end in serial memory when `load` balls per parallel slot arrive
// one after the other with k tries each: 1 - t / load, where the filled share t grows by 1 - t^k
// per ball and slot.
double expected_serial_share(double load, int k);

// The serial memory of a partition is full. Raise r2 to `required_r2` and call again: that many
// slots suffice for this set under any interleaving of the threads.
class SerialMemoryFull : public Error {
 public:
  SerialMemoryFull(const std::string& what, uint64_t required)
      : Error(what), required_r2(required) {}
  uint64_t required_r2;
};

// The memory x and the counters c of the listing.
// 1. x has n rows of r1 + r2 slots. A slot holds 0 if free, else a stored index + 1.
// 2. Every index inserted is in exactly one slot of row h0(index).
// 3. c[p] - r1 indices lie in the serial area of row p, without gaps.
template <class Index>
struct HashMemory {
  uint64_t r1 = 0, r2 = 0;
  std::vector<Index> x;
  std::vector<uint64_t> c;

  std::span<const Index> row(int p) const {
    return {x.data() + static_cast<uint64_t>(p) * (r1 + r2), r1 + r2};
  }
};

// Lines 2 to 17. REQUIRES: the indices in I are distinct and less than the largest value of Index.
// Throws InvalidArgument for parameters out of range, SerialMemoryFull if r2 is too small.
template <class Index>
HashMemory<Index> insert_indices(std::span<const Index> I, const HierarchicalHash& hash);

// Lines 18 to 24. One list per partition in slot order: the same set on every run, in an order that
// depends on the interleaving when there are several threads. Sums do not depend on it, since a
// list has an element at most once.
template <class Index>
std::vector<CooList<Index>> extract_lists(const HashMemory<Index>& memory, const Gradient& G,
                                          int threads);

// Algorithm 1.
template <class Index>
std::vector<CooList<Index>> hierarchical_hash(std::span<const Index> I, const Gradient& G,
                                              const HierarchicalHash& hash) {
  return extract_lists(insert_indices(I, hash), G, hash.threads);
}

}  // namespace zen
