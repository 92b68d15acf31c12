#include "core/hash_bitmap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "paper_fixture.h"

namespace zen {
namespace {

// Figure 10: |G| = 15, three servers, the non-zeros {5, 7} are the second and third entries of I_0.
// The paper counts from 1, so they are elements 4 and 6 here.
TEST(HashBitmap, figure_10) {
  const std::vector<uint32_t> I_0 = {1, 4, 6, 11, 13};
  const SparseGradient G(DType::f32, 15, {0, 4, 6, 7});  // 0 and 7 belong to other servers
  const HashBitmap encoded = hash_bitmap_encode<uint32_t>(G.gradient, I_0);
  EXPECT_EQ(encoded.bitmap, std::vector<uint64_t>{0b00110});  // 0110. read from bit 0
  EXPECT_EQ(hash_bitmap_decode<uint32_t>(encoded.bitmap, I_0, 2), (std::vector<uint32_t>{4, 6}));
}

TEST(HashBitmap, index_lists_are_sorted_disjoint_and_complete) {
  for (const uint64_t numel : {0, 1, 15, 64, 1'000'003})
    for (const int n : {1, 3, 8}) {
      const PartitionHash h0(n, 5);
      const IndexLists<uint32_t> lists(numel, h0);
      ASSERT_EQ(lists.n(), n);
      std::vector<bool> seen(numel, false);
      for (int j = 0; j < n; ++j) {
        ASSERT_TRUE(std::is_sorted(lists[j].begin(), lists[j].end()));
        for (const uint32_t index : lists[j]) {
          ASSERT_FALSE(seen[index]) << "element " << index << " is in two lists";
          seen[index] = true;
          ASSERT_EQ(h0(index), static_cast<uint32_t>(j));
        }
      }
      EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 0) << numel << " / " << n;
    }
}

template <class Index>
void expect_round_trip(DType dtype, uint32_t numel, double density, int n) {
  SCOPED_TRACE(testing::Message() << name_of(dtype) << ", numel " << numel << ", density "
                                  << density << ", n " << n);
  const IndexSet indices = uniform_indices(numel, density, numel + 3);
  const SparseGradient G(dtype, numel, indices), empty(dtype, numel, {});
  const IndexLists<Index> I(numel, PartitionHash(n, 9));
  uint64_t bits = 0;
  for (int j = 0; j < n; ++j) {
    const HashBitmap encoded = hash_bitmap_encode<Index>(G.gradient, I[j]);
    const uint64_t count = encoded.values.size() / size_of(dtype);
    const auto decoded = hash_bitmap_decode<Index>(encoded.bitmap, I[j], count);
    scatter_values<Index>(empty.gradient, decoded, encoded.values.data());
    bits += I[j].size();
  }
  EXPECT_EQ(bits, numel) << "all bitmaps together take one bit per element, whatever n";
  const Buffer& expected = G.gradient.data;
  EXPECT_TRUE(std::equal(expected.data, expected.data + expected.bytes, empty.gradient.data.data));
}

TEST(HashBitmap, round_trip_at_any_size_density_and_server_count) {
  for (const uint32_t numel : {0, 1, 63, 64, 65, 127, 1009, 4099})
    for (const double density : {0.0, 0.1, 0.95, 1.0})
      for (const int n : {1, 2, 3, 16}) {
        expect_round_trip<uint32_t>(DType::f32, numel, density, n);
        expect_round_trip<uint64_t>(DType::bf16, numel, density, n);
      }
}

TEST(HashBitmap, lists_zeros_that_a_worker_pushed) {
  const std::vector<uint32_t> I_0 = {1, 4, 6, 11, 13};
  const SparseGradient G(DType::f32, 15, {4});
  const uint64_t listed = 1u << 4 | 1u << 11;  // element 11 summed to zero
  const HashBitmap encoded = hash_bitmap_encode<uint32_t>(G.gradient, &listed, I_0);
  EXPECT_EQ(encoded.bitmap, std::vector<uint64_t>{0b01010});
  EXPECT_EQ(encoded.values.size(), 8u);
}

TEST(HashBitmap, minus_zero_is_not_listed_and_nan_is) {
  std::vector<float> elements = {-0.0f, std::numeric_limits<float>::quiet_NaN(), 0.0f};
  const Gradient G{{reinterpret_cast<std::byte*>(elements.data()), 12, nullptr}, DType::f32, 3};
  const std::vector<uint32_t> I_0 = {0, 1, 2};
  EXPECT_EQ(hash_bitmap_encode<uint32_t>(G, I_0).bitmap, std::vector<uint64_t>{0b010});
}

TEST(HashBitmap, decode_rejects_wrong_length_count_and_trailing_bits) {
  const std::vector<uint32_t> I_0 = {1, 4, 6, 11, 13};
  const std::vector<uint64_t> good = {0b00110}, beyond = {0b100010}, longer = {0b00110, 0};
  EXPECT_THROW(hash_bitmap_decode<uint32_t>(good, I_0, 3), MalformedMessage);
  EXPECT_THROW(hash_bitmap_decode<uint32_t>(beyond, I_0, 2), MalformedMessage);
  EXPECT_THROW(hash_bitmap_decode<uint32_t>(longer, I_0, 2), MalformedMessage);
  EXPECT_THROW(hash_bitmap_decode<uint32_t>({}, I_0, 0), MalformedMessage);
}

}  // namespace
}  // namespace zen
