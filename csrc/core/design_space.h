// Bytes of every scheme in the ZEN paper's design space (section 2.2), under the assumptions of its
// appendix B.1: one rank per node, full-duplex links between all pairs, no latency, coordinate
// lists, the same density on all ranks, the same densification in every part, n a power of two.
//
// Costs are what the busiest rank sends or receives, stage by stage, in units of one rank's
// coordinate list (d |G| (v + i) bytes). Where a combination can be realised in several ways the
// cheapest counts, so that Theorem 1 is tested against the strongest rivals.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace zen {

enum class Communication { ring, hierarchy, point_to_point };
enum class Aggregation { incremental, one_shot };
// Centralised schemes move whole tensors; balance applies to parts only.
enum class Partition { centralised, parallel_balanced, parallel_unbalanced };

struct Combination {
  Communication communication;
  Aggregation aggregation;
  Partition partition;

  friend bool operator==(const Combination&, const Combination&) = default;
};

constexpr Combination kBalancedParallelism = {
    Communication::point_to_point, Aggregation::incremental, Partition::parallel_balanced};
constexpr Combination kHierarchicalCentralisation = {
    Communication::hierarchy, Aggregation::incremental, Partition::centralised};

// All of them: 3 * 2 * 3.
std::vector<Combination> all_combinations();

std::string name_of(const Combination& combination);

// What the ranks' tensors look like together.
// 1. densification[k - 1] is the density of the sum of k ranks over that of one: it starts with 1,
//    never falls, and is at most k. Its size n is a power of two.
// 2. skew is the largest share of the non-zeros in one of n equal ranges, times n: from 1 to n.
struct Overlap {
  std::span<const double> densification;
  double skew = 1;
};

// Cost of a combination in coordinate lists of one rank. REQUIRES: the invariants of Overlap.
double relative_bytes(const Combination& combination, const Overlap& overlap);

}  // namespace zen
