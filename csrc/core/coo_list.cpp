#include "core/coo_list.h"

#include <cstring>

#include "core/dtype.h"

namespace zen {

namespace {

// Calls f with the unsigned integer type as wide as the dtype: values are moved, never computed
// with.
template <class F>
decltype(auto) with_value_bits(DType dtype, F&& f) {
  return size_of(dtype) == 4 ? f(uint32_t{}) : f(uint16_t{});
}

}  // namespace

template <class Index>
std::vector<Index> nonzero_indices(const Gradient& G) {
  std::vector<Index> indices;
  with_value_bits(G.dtype, [&]<class Bits>(Bits) {
    const auto* element = reinterpret_cast<const Bits*>(G.data.data);
    for (uint64_t index = 0; index < G.numel; ++index)
      if (static_cast<Bits>(element[index] << 1)) indices.push_back(static_cast<Index>(index));
  });
  return indices;
}

template <class Index>
std::vector<std::byte> gather_values(const Gradient& G, std::span<const Index> indices) {
  std::vector<std::byte> values(indices.size() * size_of(G.dtype));
  with_value_bits(G.dtype, [&]<class Bits>(Bits) {
    const auto* element = reinterpret_cast<const Bits*>(G.data.data);
    auto* value = reinterpret_cast<Bits*>(values.data());
    for (size_t entry = 0; entry < indices.size(); ++entry) value[entry] = element[indices[entry]];
  });
  return values;
}

template <class Index>
void scatter_values(const Gradient& G, std::span<const Index> indices, const std::byte* values) {
  const size_t width = size_of(G.dtype);  // `values` may lie unaligned in a message
  for (size_t entry = 0; entry < indices.size(); ++entry)
    std::memcpy(G.data.data + indices[entry] * width, values + entry * width, width);
}

template std::vector<uint32_t> nonzero_indices(const Gradient&);
template std::vector<uint64_t> nonzero_indices(const Gradient&);
template std::vector<std::byte> gather_values(const Gradient&, std::span<const uint32_t>);
template std::vector<std::byte> gather_values(const Gradient&, std::span<const uint64_t>);
template void scatter_values(const Gradient&, std::span<const uint32_t>, const std::byte*);
template void scatter_values(const Gradient&, std::span<const uint64_t>, const std::byte*);

}  // namespace zen
