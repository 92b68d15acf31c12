// Algorithm 2 of the ZEN paper: the hash bitmap, which names the non-zeros of one server's
// partition with one bit per element of that partition, |G| bits over all servers together.
//
// I_j, the elements that h0 gives to partition j, is computed and sorted once. Bit q of server j's
// bitmap says whether the q-th entry of I_j is listed; the values follow in that order. In the
// paper's figure 10 the listed elements are the second and third of I_0: the bitmap is 0110...
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/coo_list.h"
#include "core/index_lists.h"

namespace zen {

constexpr uint64_t bitmap_words(uint64_t bits) {
  return (bits + 63) / 64;
}

// 1. bitmap has bitmap_words(|I_j|) words; bit q is bit q % 64 of word q / 64; bits past |I_j| are
// 0.
// 2. values has one value per set bit, in their order.
struct HashBitmap {
  std::vector<uint64_t> bitmap;
  std::vector<std::byte> values;
};

// Encodes the elements of I_j with x != 0 (NaN included).
template <class Index>
HashBitmap hash_bitmap_encode(const Gradient& G, std::span<const Index> I_j);

// Encodes the elements of I_j whose bit is set in `listed`, one bit per element of G. A server
// lists what any worker pushed, zeros included, so that sums that cancel overwrite what the workers
// hold.
template <class Index>
HashBitmap hash_bitmap_encode(const Gradient& G, const uint64_t* listed,
                              std::span<const Index> I_j);

// The listed elements, ascending. Throws MalformedMessage if the bitmap's length, the bits past
// |I_j| or the number of ones is not what I_j and `count` demand.
template <class Index>
std::vector<Index> hash_bitmap_decode(std::span<const uint64_t> bitmap, std::span<const Index> I_j,
                                      uint64_t count);

}  // namespace zen
