#include "core/merge.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "oracle.h"

namespace zen::test {
namespace {

// Every rank's lists for one shard, and the merge of them checked against the oracle.
class Group {
 public:
  explicit Group(const Shard& shard) : shard_(shard) {}

  Group& give(DType dtype, Lists lists) {
    ranks_.push_back({dtype, std::move(lists)});
    return *this;
  }

  // A rank whose gradient is random.
  Group& give(DType dtype, Pattern pattern, double density, uint64_t seed) {
    const Placement& placement = *shard_.placement;
    TestGradient gradient = make_gradient(dtype, placement.numel(), pattern, density, seed);
    auto lists = oracle_select(gradient, placement, placement.all());
    return give(dtype, lists[static_cast<size_t>(shard_.owner)]);
  }

  void expect_merges_like_oracle(DType dtype, float divisor) const {
    std::vector<OpenMessage> messages;
    for (const RankLists& rank : ranks_)
      messages.push_back(open_message(rank.lists, shard_, rank.dtype));
    const Lists expected = oracle_merge(ranks_, dtype, divisor);
    for (Isa isa : supported_isas()) {
      SCOPED_TRACE(zen::name_of(isa));
      const ShardSelection sum = merge(messages, shard_, dtype, divisor, heap_buffer, isa);
      expect_same(lists_of(sum), expected, dtype);
    }
  }

 private:
  Shard shard_;
  std::vector<RankLists> ranks_;
};

std::shared_ptr<const Placement> whole(uint64_t numel) {
  return Placement::make(PlacementKind::whole, numel, 1, 0);
}

Shard all_of(const Placement& placement, int owner = 0) {
  return placement.shard(owner, placement.all());
}

class MergeTest : public testing::TestWithParam<std::tuple<DType, Pattern>> {};

TEST_P(MergeTest, adds_like_the_oracle) {
  const auto [dtype, pattern] = GetParam();
  for (uint64_t numel : {0u, 1u, 63u, 64u, 65u, 127u, 1000u, 4097u, 9973u})
    for (double density : {0.0, 0.001, 0.05, 0.5, 0.97, 1.0})
      for (int ranks : {1, 2, 5}) {
        SCOPED_TRACE(std::to_string(numel) + " elements, density " + std::to_string(density) +
                     ", ranks " + std::to_string(ranks));
        const auto placement = Placement::make(PlacementKind::hashed, numel, 2, 1);
        Group group(all_of(*placement, 1));
        for (int rank = 0; rank < ranks; ++rank)
          group.give(dtype, pattern, density, static_cast<uint64_t>(rank) + numel);
        group.expect_merges_like_oracle(dtype, static_cast<float>(ranks));
        if (HasFatalFailure()) return;
      }
}

INSTANTIATE_TEST_SUITE_P(Everything, MergeTest,
                         testing::Combine(testing::ValuesIn(kDTypes), testing::ValuesIn(kPatterns)),
                         [](const auto& info) {
                           return std::string(zen::name_of(std::get<0>(info.param))) + "_" +
                                  name_of(std::get<1>(info.param));
                         });

TEST(MergeRanks, may_be_more_than_a_machine_word_has_bits) {
  const auto placement = whole(5000);
  for (int ranks : {63, 64, 65, 130}) {
    SCOPED_TRACE(ranks);
    Group group(all_of(*placement));
    for (int rank = 0; rank < ranks; ++rank)
      group.give(DType::f32, Pattern::uniform, 0.02, static_cast<uint64_t>(rank));
    group.expect_merges_like_oracle(DType::f32, 1);
  }
}

TEST(MergeRanks, may_differ_in_dtype) {
  const auto placement = whole(3001);
  for (DType out : kDTypes) {
    Group group(all_of(*placement));
    group.give(DType::f32, Pattern::uniform, 0.1, 1)
        .give(DType::bf16, Pattern::rows, 0.5, 2)
        .give(DType::f16, Pattern::uniform, 0.4, 3);
    group.expect_merges_like_oracle(out, 3);
  }
}

TEST(MergeRounding, adds_in_rank_order) {
  const auto placement = whole(1);
  const auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
  Group group(all_of(*placement));
  for (float x : {1e8f, 1.0f, -1e8f, 0.25f}) group.give(DType::f32, Lists{{0, bits(x)}});
  group.expect_merges_like_oracle(DType::f32, 1);
}

TEST(MergeRounding, starts_from_the_first_value) {
  const auto placement = whole(2);
  Group group(all_of(*placement));
  group.give(DType::f32, Lists{{0, 0x80000000u}}).give(DType::f32, Lists{{1, 0x80000000u}});
  group.expect_merges_like_oracle(DType::f32, 1);
}

TEST(MergeRounding, keeps_zeros_in_the_union) {
  const auto placement = whole(64);
  Group group(all_of(*placement));
  group.give(DType::f32, Lists{{3, std::bit_cast<uint32_t>(2.0f)}})
      .give(DType::f32, Lists{{3, std::bit_cast<uint32_t>(-2.0f)}});
  group.expect_merges_like_oracle(DType::f32, 2);
}

// Every 16-bit value there is, through the widening of every instruction set.
TEST(MergeRounding, widens_every_16_bit_value) {
  const auto placement = whole(65536);
  for (DType dtype : {DType::f16, DType::bf16})
    for (int ranks : {1, 2}) {
      Group group(all_of(*placement));
      for (int rank = 0; rank < ranks; ++rank) {
        Lists lists;
        for (uint32_t bits = 0; bits < 65536; ++bits) lists[bits] = bits;
        group.give(dtype, std::move(lists));
      }
      group.expect_merges_like_oracle(DType::f32, 1);
      group.expect_merges_like_oracle(dtype, 3);
    }
}

// Floats next to everything that rounding to 16 bits decides on.
TEST(MergeRounding, narrows_floats_near_every_16_bit_value_and_every_tie) {
  const auto placement = whole(65536 * 6);
  for (DType dtype : {DType::f16, DType::bf16}) {
    Lists lists;
    uint64_t elem = 0;
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const auto value = std::bit_cast<uint32_t>(from_bits(dtype, bits));
      const uint32_t half = dtype == DType::bf16 ? 0x8000u : 0x1000u;
      for (uint32_t offset : {0u, 1u, ~0u, half, half - 1, half + 1})
        lists[elem++] = value + offset;
    }
    Group group(all_of(*placement));
    group.give(DType::f32, std::move(lists));
    group.expect_merges_like_oracle(dtype, 1);
  }
}

TEST(MergeRounding, narrows_random_floats) {
  const auto placement = whole(30011);
  std::mt19937_64 random(1);
  Lists lists;
  for (uint64_t elem = 0; elem < placement->numel(); ++elem)
    lists[elem] = static_cast<uint32_t>(random());
  for (DType dtype : kDTypes) {
    Group group(all_of(*placement));
    group.give(DType::f32, lists);
    group.expect_merges_like_oracle(dtype, 7);
  }
}

TEST(MergeArguments, need_a_message) {
  const auto placement = whole(64);
  EXPECT_THROW(merge({}, all_of(*placement), DType::f32, 1, heap_buffer), InvalidArgument);
}

}  // namespace
}  // namespace zen::test
