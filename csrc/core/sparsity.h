// What the ranks' gradients of one bucket look like together: how much any of them, or any run of
// neighbouring ranks together, lists in any part of the gradient.
//
// Only the four operations and comparisons are used, so that all ranks compute the same bits from
// the same looks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/counts.h"
#include "core/look.h"

namespace zen {

// A part of a gradient, in shares of it: from 0 to 1.
struct Extent {
  double begin = 0, end = 1;
};

class Sparsity {
 public:
  // By rank. REQUIRES: at least one look; all of the same numel.
  explicit Sparsity(std::vector<Look> looks);

  // When no more is known than how many elements each rank lists and how many their sum lists:
  // elements are then taken to be scattered evenly, and any two ranks to overlap alike.
  Sparsity(uint64_t numel, std::vector<double> listed, double listed_in_sum);

  int ranks() const { return ranks_; }
  uint64_t numel() const { return numel_; }
  double words() const;

  // What the ranks [first, last) list together in `part`. REQUIRES: first < last.
  Counts listed(int first, int last, Extent part = {}) const;

  // Share of the elements listed by a rank, on average; and by the sum of all ranks.
  double density() const;
  double density_of_sum() const;

  // Density of the sum of `ranks` neighbouring ranks over that of one: the paper's gamma
  // (section 2.1). Averaged over the runs of ranks that a hierarchy would add.
  double densification(int ranks) const;

  // Largest share of a rank's non-zeros in one of ranks() equal ranges, times ranks().
  double skew() const;

  // Packed over raw bytes of values, on average over the ranks; 1 where it is not known.
  double packed_share() const { return packed_share_; }

 private:
  // A sampled block of all ranks: masks[rank * kBlockWords + word of the block].
  struct Overlaid {
    double place;  // of its beginning, as a share of the gradient
    std::vector<uint64_t> masks;
  };
  struct Ratio {
    Counts together, apart;  // of the union; of the ranks one by one
  };

  void overlay();
  Counts alone(int rank, Extent part) const;
  Counts scattered(double elements, Extent part) const;
  Ratio overlap(int first, int last, Extent part) const;
  Counts capped(Counts counts, Extent part) const;

  int ranks_;
  uint64_t numel_;
  std::vector<Look> looks_;          // empty if only counts are known
  std::vector<Overlaid> overlaid_;   // by place
  std::vector<double> only_counts_;  // by rank
  double repeat_ = 0;  // with counts only: share of a sum's elements that one more rank lists again
  double packed_share_ = 1;
};

}  // namespace zen
