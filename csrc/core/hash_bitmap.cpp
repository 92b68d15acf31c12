#include "core/hash_bitmap.h"

#include <bit>
#include <string>

#include "core/error.h"

namespace zen {

namespace {

template <class Index, class IsListed>
HashBitmap encode(const Gradient& G, std::span<const Index> I_j, IsListed is_listed) {
  HashBitmap result{.bitmap = std::vector<uint64_t>(bitmap_words(I_j.size()), 0), .values = {}};
  std::vector<Index> indices;
  for (uint64_t q = 0; q < I_j.size(); ++q) {
    if (!is_listed(I_j[q])) continue;
    result.bitmap[q / 64] |= uint64_t{1} << q % 64;
    indices.push_back(I_j[q]);
  }
  result.values = gather_values(G, std::span<const Index>(indices));
  return result;
}

void check_equal(const char* what, uint64_t found, uint64_t expected) {
  if (found != expected)
    throw MalformedMessage("hash bitmap: " + std::string(what) + " = " + std::to_string(found) +
                           ", expected " + std::to_string(expected));
}

}  // namespace

template <class Index>
HashBitmap hash_bitmap_encode(const Gradient& G, std::span<const Index> I_j) {
  if (size_of(G.dtype) == 4) {
    const auto* bits = reinterpret_cast<const uint32_t*>(G.data.data);
    return encode(G, I_j, [bits](Index index) { return bits[index] << 1 != 0; });
  }
  const auto* bits = reinterpret_cast<const uint16_t*>(G.data.data);
  return encode(G, I_j, [bits](Index index) { return (bits[index] & 0x7fffu) != 0; });
}

template <class Index>
HashBitmap hash_bitmap_encode(const Gradient& G, const uint64_t* listed,
                              std::span<const Index> I_j) {
  return encode(G, I_j, [listed](Index index) { return listed[index / 64] >> index % 64 & 1; });
}

template <class Index>
std::vector<Index> hash_bitmap_decode(std::span<const uint64_t> bitmap, std::span<const Index> I_j,
                                      uint64_t count) {
  check_equal("64-bit words", bitmap.size(), bitmap_words(I_j.size()));
  uint64_t ones = 0;
  for (const uint64_t bits : bitmap) ones += static_cast<uint64_t>(std::popcount(bits));
  check_equal("ones", ones, count);
  if (I_j.size() % 64) check_equal("bits past the end", bitmap.back() >> I_j.size() % 64, 0);

  std::vector<Index> indices;
  indices.reserve(count);
  for (uint64_t word = 0; word < bitmap.size(); ++word)
    for (uint64_t bits = bitmap[word]; bits != 0; bits &= bits - 1)
      indices.push_back(I_j[word * 64 + static_cast<uint64_t>(std::countr_zero(bits))]);
  return indices;
}

template HashBitmap hash_bitmap_encode(const Gradient&, std::span<const uint32_t>);
template HashBitmap hash_bitmap_encode(const Gradient&, std::span<const uint64_t>);
template HashBitmap hash_bitmap_encode(const Gradient&, const uint64_t*, std::span<const uint32_t>);
template HashBitmap hash_bitmap_encode(const Gradient&, const uint64_t*, std::span<const uint64_t>);
template std::vector<uint32_t> hash_bitmap_decode(std::span<const uint64_t>,
                                                  std::span<const uint32_t>, uint64_t);
template std::vector<uint64_t> hash_bitmap_decode(std::span<const uint64_t>,
                                                  std::span<const uint64_t>, uint64_t);

}  // namespace zen
