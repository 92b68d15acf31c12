// Which elements the paper's h0 gives to each partition: the lists I_0 ... I_{n-1} of Algorithm 2.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/partition_hash.h"

namespace zen {

// The lists I_0 ... I_{n-1}: disjoint, ascending, together [0, numel). Immutable; 4 or 8 bytes per
// element of the gradient.
template <class Index>
class IndexLists {
 public:
  // REQUIRES: numel - 1 fits Index.
  IndexLists(uint64_t numel, PartitionHash h0);

  std::span<const Index> operator[](int j) const {
    const auto p = static_cast<size_t>(j);
    return std::span<const Index>(indices_).subspan(first_[p], first_[p + 1] - first_[p]);
  }
  int n() const { return static_cast<int>(first_.size()) - 1; }

 private:
  std::vector<uint64_t> first_;  // n + 1 positions into indices_
  std::vector<Index> indices_;
};

}  // namespace zen
