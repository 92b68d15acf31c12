// A sparse tensor in coordinate form, and how to read one out of a dense gradient. The paper's
// algorithms speak this language; the library's own currency is Selection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/gradient.h"

namespace zen {

// Element indices and their values in the same order, `size_of(dtype)` bytes a value.
template <class Index>
struct CooList {
  std::vector<Index> indices;
  std::vector<std::byte> values;
};

// The set I: indices of the elements with x != 0 (NaN included), ascending.
// REQUIRES: every index fits Index with one value to spare (see with_index_type).
template <class Index>
std::vector<Index> nonzero_indices(const Gradient& G);

// G[indices]. REQUIRES: indices < G.numel.
template <class Index>
std::vector<std::byte> gather_values(const Gradient& G, std::span<const Index> indices);

// G[indices] = values. REQUIRES: as gather_values, one value per index.
template <class Index>
void scatter_values(const Gradient& G, std::span<const Index> indices, const std::byte* values);

}  // namespace zen
