// Small verbs for the tests of the paper's three algorithms.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "core/coo_list.h"
#include "core/dtype.h"
#include "index_patterns.h"

namespace zen {

// A gradient that is zero except at `indices`, where element e holds a value that names it. The
// values are bit patterns: the algorithms move values and never compute with them.
class SparseGradient {
 public:
  SparseGradient(DType dtype, uint64_t numel, const IndexSet& indices)
      : bytes_(numel * size_of(dtype)) {
    gradient.data = {bytes_.data(), bytes_.size(), nullptr};
    gradient.dtype = dtype;
    gradient.numel = numel;
    for (const uint32_t index : indices) {
      const uint32_t bits = value_bits(index);
      std::memcpy(bytes_.data() + index * size_of(dtype), &bits, size_of(dtype));
    }
  }

  uint32_t value_bits(uint64_t index) const {  // never zero, whatever the sign
    return size_of(gradient.dtype) == 4 ? static_cast<uint32_t>(index % 0x7fffffff + 1)
                                        : static_cast<uint32_t>(index % 0x7fff + 1);
  }

  Gradient gradient;

 private:
  std::vector<std::byte> bytes_;
};

// index -> bits of its value; duplicates are counted, since a list must not have any.
template <class Index>
std::map<uint64_t, uint32_t> to_map(const CooList<Index>& list, DType dtype, int* duplicates) {
  std::map<uint64_t, uint32_t> map;
  for (size_t entry = 0; entry < list.indices.size(); ++entry) {
    uint32_t bits = 0;
    std::memcpy(&bits, list.values.data() + entry * size_of(dtype), size_of(dtype));
    *duplicates += !map.emplace(list.indices[entry], bits).second;
  }
  return map;
}

template <class Index>
std::vector<Index> as_type(const IndexSet& indices) {
  return std::vector<Index>(indices.begin(), indices.end());
}

}  // namespace zen
