#include "core/hierarchical_hash.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "paper_fixture.h"

namespace zen {
namespace {

constexpr uint32_t kSeed = 2025;

// Every index of I is in the list of its partition exactly once, with its value, and nothing else
// is.
template <class Index>
void expect_lossless(DType dtype, uint64_t numel, const IndexSet& indices, int n, double r1_ratio,
                     int k, int threads) {
  SCOPED_TRACE(testing::Message() << "dtype " << name_of(dtype) << ", index bytes " << sizeof(Index)
                                  << ", numel " << numel << ", nnz " << indices.size() << ", n "
                                  << n << ", r1 " << r1_ratio << ", k " << k << ", threads "
                                  << threads);
  const SparseGradient G(dtype, numel, indices);
  const auto I = as_type<Index>(indices);
  ASSERT_EQ(nonzero_indices<Index>(G.gradient), I);
  const PartitionHash h0(n, kSeed);
  const auto lists = hierarchical_hash<Index>(
      I, G.gradient, make_hierarchical_hash(h0, 7, k, I.size(), r1_ratio, threads));

  ASSERT_EQ(lists.size(), static_cast<size_t>(n));
  size_t total = 0;
  int duplicates = 0;
  for (int p = 0; p < n; ++p) {
    const auto& list = lists[static_cast<size_t>(p)];
    ASSERT_EQ(list.values.size(), list.indices.size() * size_of(dtype));
    for (const auto& [index, bits] : to_map(list, dtype, &duplicates)) {
      EXPECT_EQ(h0(static_cast<Index>(index)), static_cast<uint32_t>(p)) << "index " << index;
      EXPECT_EQ(bits, G.value_bits(index)) << "index " << index;
      EXPECT_TRUE(std::binary_search(indices.begin(), indices.end(), index)) << "index " << index;
    }
    total += list.indices.size();
  }
  EXPECT_EQ(duplicates, 0);
  EXPECT_EQ(total, indices.size());
}

TEST(HierarchicalHash, loses_nothing_at_any_size_density_and_partition_count) {
  for (const uint32_t numel : {0, 1, 2, 63, 64, 65, 255, 256, 257, 1009, 4096, 10'007})
    for (const double density : {0.0, 0.01, 0.3, 1.0})
      for (const int n : {1, 2, 3, 7, 16})
        expect_lossless<uint32_t>(DType::f32, numel, uniform_indices(numel, density, numel + 1), n,
                                  2.0, 3, 1);
}

TEST(HierarchicalHash, loses_nothing_with_threads_types_and_crowded_memory) {
  const uint32_t numel = 40'009;
  for (const int threads : {1, 2, 5})
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
      for (const double r1_ratio : {0.1, 1.0, 4.0})
        for (const int k : {1, 4}) {
          const IndexSet indices = uniform_indices(numel, 0.4, 3);
          expect_lossless<uint32_t>(dtype, numel, indices, 8, r1_ratio, k, threads);
          expect_lossless<uint64_t>(dtype, numel, indices, 8, r1_ratio, k, threads);
        }
}

TEST(HierarchicalHash, keeps_element_zero_and_the_last_one) {
  expect_lossless<uint32_t>(DType::f32, 1'000'003, {0, 1'000'002}, 8, 2.0, 3, 2);
}

TEST(HierarchicalHash, more_threads_than_indices) {
  expect_lossless<uint32_t>(DType::f32, 100, {5, 50}, 4, 2.0, 3, 16);
}

// Beyond 2^32 elements on index arithmetic alone: no gradient of that size is allocated.
TEST(HierarchicalHash, stores_indices_beyond_32_bits) {
  std::vector<uint64_t> I;
  for (uint64_t entry = 0; entry < 5000; ++entry) I.push_back((uint64_t{1} << 33) + entry * 977);
  const PartitionHash h0(16, kSeed);
  const auto memory =
      insert_indices<uint64_t>(I, make_hierarchical_hash(h0, 7, 3, I.size(), 2.0, 2));

  std::vector<uint64_t> found;
  for (int p = 0; p < 16; ++p)
    for (const uint64_t stored : memory.row(p))
      if (stored != 0) {
        EXPECT_EQ(h0(stored - 1), static_cast<uint32_t>(p));
        found.push_back(stored - 1);
      }
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, I);
}

TEST(HierarchicalHash, index_type_grows_at_two_to_the_32) {
  const auto index_bytes = [](uint64_t numel) {
    return with_index_type(numel, [](auto index) { return sizeof(index); });
  };
  EXPECT_EQ(index_bytes(UINT32_MAX), 4u);  // the largest index + 1 still fits
  EXPECT_EQ(index_bytes(uint64_t{UINT32_MAX} + 1), 8u);
}

TEST(HierarchicalHash, full_serial_memory_says_how_large_it_must_be) {
  const auto I = as_type<uint32_t>(uniform_indices(100'000, 0.5, 1));
  for (const int threads : {1, 3}) {
    HierarchicalHash hash =
        make_hierarchical_hash(PartitionHash(4, kSeed), 7, 2, I.size(), 1.0, threads);
    hash.r2 = 10;
    uint64_t required = 0;
    try {
      insert_indices<uint32_t>(I, hash);
      FAIL() << "r2 = 10 cannot hold the serial indices";
    } catch (const SerialMemoryFull& error) {
      required = error.required_r2;
      EXPECT_NE(std::string(error.what()).find("raise r2 to " + std::to_string(required)),
                std::string::npos)
          << error.what();
    }
    EXPECT_GT(required, I.size() / 4);
    hash.r2 = required;
    EXPECT_NO_THROW(insert_indices<uint32_t>(I, hash));
  }
}

TEST(HierarchicalHash, required_serial_memory_suffices_even_without_parallel_memory) {
  const auto I = as_type<uint32_t>(uniform_indices(20'000, 1.0, 1));
  HierarchicalHash hash{.h0 = PartitionHash(3, kSeed), .H = {1}, .r1 = 1, .r2 = 0};
  try {
    insert_indices<uint32_t>(I, hash);
    FAIL();
  } catch (const SerialMemoryFull& error) {
    hash.r2 = error.required_r2;
  }
  const auto memory = insert_indices<uint32_t>(I, hash);
  for (const uint64_t c : memory.c) EXPECT_LE(c, hash.r1 + hash.r2);
}

TEST(HierarchicalHash, rejects_bad_parameters) {
  const std::vector<uint32_t> I = {1, 2, 3};
  EXPECT_THROW(PartitionHash(0, 1), InvalidArgument);
  EXPECT_THROW(PartitionHash(65536, 1), InvalidArgument);
  const PartitionHash h0(4, 1);
  EXPECT_THROW(make_hierarchical_hash(h0, 1, 0, 3, 2.0, 1), InvalidArgument);
  EXPECT_THROW(make_hierarchical_hash(h0, 1, 3, 3, 0.0, 1), InvalidArgument);
  EXPECT_THROW(insert_indices<uint32_t>(I, make_hierarchical_hash(h0, 1, 3, 3, 2.0, 0)),
               InvalidArgument);
  EXPECT_THROW(insert_indices<uint32_t>(I, {.h0 = h0, .H = {}, .r1 = 4, .r2 = 4}), InvalidArgument);
  EXPECT_THROW(insert_indices<uint32_t>(I, {.h0 = h0, .H = {1}, .r1 = 0, .r2 = 4}),
               InvalidArgument);
}

}  // namespace
}  // namespace zen
