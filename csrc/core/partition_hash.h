// The paper's h0: which of n partitions an element belongs to. Algorithms 1 and 2 must use the same
// h0 on every rank, or one element's partial sums would end on two servers.
//
// An index is 0-based here. It has 32 bits when the gradient has fewer than 2^32 elements, else 64;
// the two widths hash differently, so the width is a property of the gradient, never of a rank.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/murmur3.h"

namespace zen {

// Maps a hash onto [0, range) by its upper bits. REQUIRES: range <= 2^32.
constexpr uint64_t scale_to(uint32_t hash, uint64_t range) {
  return uint64_t{hash} * range >> 32;
}

class PartitionHash {
 public:
  PartitionHash(int n, uint32_t seed) : n_(static_cast<uint32_t>(n)), seed_(seed) {
    if (n < 1 || n > 65535)
      throw InvalidArgument("partitions n = " + std::to_string(n) + "; expected 1 to 65535");
  }

  int n() const { return static_cast<int>(n_); }
  uint32_t seed() const { return seed_; }

  template <class Index>
  uint32_t operator()(Index index) const {
    return static_cast<uint32_t>(scale_to(murmur3_x86_32(index, seed_), n_));
  }

 private:
  uint32_t n_, seed_;
};

// Calls `f` with a value of the index type of a gradient of `numel` elements. One value of the type
// is kept free, since Algorithms 1 and 3 store index + 1.
template <class F>
decltype(auto) with_index_type(uint64_t numel, F&& f) {
  return numel <= UINT32_MAX ? f(uint32_t{}) : f(uint64_t{});
}

}  // namespace zen
