#include "core/strawman_hash.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/partition_hash.h"
#include "paper_fixture.h"

namespace zen {
namespace {

uint64_t survivors(const std::vector<CooList<uint32_t>>& lists) {
  uint64_t count = 0;
  for (const auto& list : lists) count += list.indices.size();
  return count;
}

TEST(StrawmanHash, keeps_one_index_per_occupied_slot) {
  const uint32_t numel = 20'011;
  const IndexSet I = uniform_indices(numel, 0.3, 1);
  const SparseGradient G(DType::bf16, numel, I);
  for (const int threads : {1, 4}) {
    const StrawmanHash hash{.n = 5, .r = 1000, .seed = 3, .threads = threads};
    const auto lists = strawman_hash<uint32_t>(I, G.gradient, hash);

    IndexSet slots;
    for (const uint32_t index : I)
      slots.push_back(static_cast<uint32_t>(scale_to(murmur3_x86_32(index, hash.seed), 5000)));
    EXPECT_EQ(survivors(lists), sorted_unique(slots).size());

    int duplicates = 0;
    for (size_t p = 0; p < lists.size(); ++p)
      for (const auto& [index, bits] : to_map(lists[p], DType::bf16, &duplicates)) {
        const auto slot = scale_to(murmur3_x86_32(static_cast<uint32_t>(index), hash.seed), 5000);
        EXPECT_EQ(slot / 1000, p) << "index " << index;
        EXPECT_EQ(bits, G.value_bits(index)) << "index " << index;
      }
    EXPECT_EQ(duplicates, 0);
  }
}

// Budget: 2e5 balls leave a standard deviation below 0.0012 at every load here; six of them.
TEST(StrawmanHash, loss_follows_the_closed_form) {
  const uint32_t numel = 2'000'003;
  const IndexSet I = uniform_indices(numel, 0.1, 5);
  const SparseGradient G(DType::f32, numel, I);
  for (const double load : {0.05, 0.1, 0.398, 1.0, 4.0}) {
    const auto r = static_cast<uint64_t>(std::lround(static_cast<double>(I.size()) / load / 16));
    const auto lists = strawman_hash<uint32_t>(I, G.gradient, {.n = 16, .r = r, .seed = 11});
    const double loss = 1 - static_cast<double>(survivors(lists)) / static_cast<double>(I.size());
    EXPECT_NEAR(loss, expected_strawman_loss(load), 0.007) << "load " << load;
    EXPECT_GT(loss, 0) << "the strawman is lossy; that is its point";
  }
}

// The paper's 17.5 % and 4.8 % are one pair of the closed form, four times apart, but at the loads
// 0.4 and 0.1. "Memory as large as the tensor, density 10 %" is load 0.1: 4.8 %, not 17.5 %.
TEST(StrawmanHash, closed_form_gives_the_papers_pair_at_loads_04_and_01) {
  EXPECT_NEAR(expected_strawman_loss(0.4), 0.1758, 0.0001);
  EXPECT_NEAR(expected_strawman_loss(0.1), 0.0484, 0.0001);
  EXPECT_NEAR(expected_strawman_loss(0.025), 0.0124, 0.0001);  // four times the tensor
  EXPECT_EQ(expected_strawman_loss(0), 0);
}

TEST(StrawmanHash, rejects_bad_parameters) {
  const std::vector<uint32_t> I = {1};
  const SparseGradient G(DType::f32, 2, {1});
  const auto run = [&](const StrawmanHash& hash) { strawman_hash<uint32_t>(I, G.gradient, hash); };
  EXPECT_THROW(run({.n = 0, .r = 8}), InvalidArgument);
  EXPECT_THROW(run({.n = 4, .r = 0}), InvalidArgument);
  EXPECT_THROW(run({.n = 4, .r = uint64_t{1} << 31}), InvalidArgument);
  EXPECT_THROW(run({.n = 4, .r = 8, .threads = 0}), InvalidArgument);
}

}  // namespace
}  // namespace zen
