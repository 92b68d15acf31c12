// The bytes on the wire are those of docs/schemes.md, counted against formulas of the inputs alone.
#include <gtest/gtest.h>

#include <bit>
#include <numeric>
#include <set>
#include <string>

#include "cluster.h"

namespace zen {
namespace {

using namespace scheme_test;

constexpr size_t kElements = 4097;
constexpr uint64_t kBlock = 256;

// What a rank holds: listed element numbers.
using Listed = std::set<uint64_t>;

Listed listed(const Values& values) {
  Listed result;
  for (uint64_t elem = 0; elem < values.size(); ++elem)
    if (values[elem] != 0) result.insert(elem);
  return result;
}

Listed together(const std::vector<Listed>& ranks, int first, int count) {
  Listed result;
  for (int rank = first; rank < first + count; ++rank)
    result.insert(ranks[rank].begin(), ranks[rank].end());
  return result;
}

uint64_t pad(uint64_t bytes) {
  return (bytes + 7) / 8 * 8;
}

uint64_t coo_bytes(uint64_t count, DType dtype) {
  if (count == 0) return kHeaderBytes;
  return kHeaderBytes + pad(count * size_of(dtype)) + pad(count * 4);
}

class TrafficTest : public ::testing::TestWithParam<std::tuple<int, Pattern, DType>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<2>(GetParam()); }
  const Inputs inputs = make_inputs(std::get<1>(GetParam()), ranks(), kElements, dtype(), 5);
  const std::vector<Listed> lists = [this] {
    std::vector<Listed> lists;
    for (const Values& values : inputs) lists.push_back(listed(values));
    return lists;
  }();
  const Listed all = together(lists, 0, ranks());

  // Bytes that each rank sent.
  std::vector<uint64_t> sent_by(const std::string& scheme) {
    ThreadGroup group(ranks());
    run_job(group, {.scheme = scheme, .inputs = inputs, .dtype = dtype()});
    std::vector<uint64_t> sent;
    uint64_t in = 0;
    for (int rank = 0; rank < ranks(); ++rank) {
      sent.push_back(group.transport(rank).traffic().bytes_out);
      in += group.transport(rank).traffic().bytes_in;
    }
    EXPECT_EQ(in, std::accumulate(sent.begin(), sent.end(), uint64_t{0}));
    return sent;
  }

  std::shared_ptr<const Placement> placement(PlacementKind kind) const {
    return Placement::make(kind, kElements, ranks(), 1);
  }

  static uint64_t count_of(const Listed& listed, const Placement& placement, int owner) {
    return static_cast<uint64_t>(std::ranges::count_if(
        listed, [&](uint64_t elem) { return placement.owner(elem / kWordElems) == owner; }));
  }
};

TEST_P(TrafficTest, agsparse_sends_its_pairs_to_everybody) {
  const auto sent = sent_by("agsparse");
  for (int rank = 0; rank < ranks(); ++rank)
    EXPECT_EQ(sent[rank], (ranks() - 1) * coo_bytes(lists[rank].size(), dtype()));
}

TEST_P(TrafficTest, sparse_ps_sends_parts_and_the_sum_of_its_own_to_everybody) {
  const auto owners = placement(PlacementKind::ranges);
  const auto sent = sent_by("sparse_ps");
  for (int rank = 0; rank < ranks(); ++rank) {
    uint64_t expected = (ranks() - 1) * coo_bytes(count_of(all, *owners, rank), dtype());
    for (int owner = 0; owner < ranks(); ++owner)
      if (owner != rank) expected += coo_bytes(count_of(lists[rank], *owners, owner), dtype());
    EXPECT_EQ(sent[rank], expected);
  }
}

TEST_P(TrafficTest, sparse_ps_broadcast_passes_sums_along_binomial_trees) {
  const auto owners = placement(PlacementKind::ranges);
  const auto sent = sent_by("sparse_ps_broadcast");
  for (int rank = 0; rank < ranks(); ++rank) {
    uint64_t expected = 0;
    for (int owner = 0; owner < ranks(); ++owner) {
      if (owner != rank) expected += coo_bytes(count_of(lists[rank], *owners, owner), dtype());
      // A rank `distance` behind the owner passes the sum on once for every power of two that is
      // larger than the distance and does not lead around the circle.
      const int distance = (rank - owner + ranks()) % ranks();
      for (int reach = 1; distance + reach < ranks(); reach *= 2)
        if (distance < reach) expected += coo_bytes(count_of(all, *owners, owner), dtype());
    }
    EXPECT_EQ(sent[rank], expected);
  }
}

TEST_P(TrafficTest, omnireduce_sends_whole_blocks_without_indices) {
  const auto owners = placement(PlacementKind::ranges);
  const auto bytes = [&](const Listed& elements, int owner) {
    const Shard shard = owners->shard(owner, owners->all());
    const uint64_t begin = shard.slots ? shard.word(0) * kWordElems : 0;
    std::set<uint64_t> blocks;
    for (const uint64_t elem : elements)
      if (owners->owner(elem / kWordElems) == owner) blocks.insert((elem - begin) / kBlock);
    uint64_t values = 0;
    for (const uint64_t block : blocks)
      values += std::min(kBlock, shard.elements - block * kBlock) * size_of(dtype());
    return kHeaderBytes + pad(values) + pad(((shard.slots + 3) / 4 + 7) / 8);
  };
  const auto sent = sent_by("omnireduce");
  for (int rank = 0; rank < ranks(); ++rank) {
    uint64_t expected = (ranks() - 1) * bytes(all, rank);
    for (int owner = 0; owner < ranks(); ++owner)
      if (owner != rank) expected += bytes(lists[rank], owner);
    EXPECT_EQ(sent[rank], expected);
  }
}

TEST_P(TrafficTest, sparcml_swaps_ever_denser_partial_sums) {
  const auto bytes = [&](const Listed& elements, DType type) {
    return std::min(kHeaderBytes + kElements * size_of(type), coo_bytes(elements.size(), type));
  };
  const auto sent = sent_by("sparcml");
  const int steps = std::bit_width(static_cast<unsigned>(ranks())) - 1;
  const int folded = ranks() - (1 << steps);
  for (int rank = 0; rank < ranks(); ++rank) {
    const bool in_pair = rank < 2 * folded;
    uint64_t expected = 0;
    if (in_pair && rank % 2 == 1) {
      expected = bytes(lists[rank], dtype());
    } else {
      const int number = in_pair ? rank / 2 : rank - folded;
      for (int step = 0; step < steps; ++step) {
        // The sum of 2^step neighbouring participants.
        const int first = number >> step << step;
        const auto rank_of = [&](int n) { return n < folded ? 2 * n : n + folded; };
        const int from = rank_of(first), to = rank_of(first + (1 << step));
        const DType type = step > 0 || in_pair ? DType::f32 : dtype();
        expected += bytes(together(lists, from, to - from), type);
      }
      if (in_pair) expected += bytes(all, dtype());
    }
    EXPECT_EQ(sent[rank], expected) << "rank " << rank;
  }
}

TEST_P(TrafficTest, balanced_parallelism_never_sends_more_than_pairs_would) {
  const auto owners = placement(PlacementKind::hashed);
  const auto sent = sent_by("balanced_parallelism");
  for (int rank = 0; rank < ranks(); ++rank) {
    uint64_t pairs = (ranks() - 1) * coo_bytes(count_of(all, *owners, rank), dtype());
    for (int owner = 0; owner < ranks(); ++owner)
      if (owner != rank) pairs += coo_bytes(count_of(lists[rank], *owners, owner), dtype());
    EXPECT_LE(sent[rank], pairs + 2 * (ranks() - 1) * 16);
    EXPECT_GE(sent[rank], 2 * (ranks() - 1) * kHeaderBytes);
  }
}

TEST_P(TrafficTest, allreduce_counts_a_ring) {
  const uint64_t bytes = kElements * size_of(dtype());
  for (const uint64_t sent : sent_by("allreduce"))
    EXPECT_EQ(sent, 2 * bytes * (ranks() - 1) / ranks());
}

INSTANTIATE_TEST_SUITE_P(All, TrafficTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 6, 8),
                                            ::testing::Values(Pattern::zeros, Pattern::scattered,
                                                              Pattern::one_range, Pattern::dense),
                                            ::testing::Values(DType::f32, DType::bf16)));

// Packed values, where a scheme may pack: the published baselines keep their bytes.
TEST(PackedTraffic, dense_bfloat16_shrinks_where_values_may_be_packed) {
  constexpr int kRanks = 4;
  const Inputs inputs = make_inputs(Pattern::dense, kRanks, 65537, DType::bf16, 3);
  const auto sent = [&](const std::string& scheme, bool pack_values) {
    ThreadGroup group(kRanks);
    run_job(group,
            {.scheme = scheme, .inputs = inputs, .dtype = DType::bf16, .pack_values = pack_values});
    return static_cast<double>(group.transport(1).traffic().bytes_out);
  };
  for (const Scheme& scheme : schemes()) {
    const std::string name(scheme.name);
    const double share = sent(name, true) / sent(name, false);
    if (name == "balanced_parallelism" || name == "hierarchical") {
      EXPECT_LT(share, 0.9) << name;
    } else {
      EXPECT_EQ(share, 1) << name;
    }
  }
}

TEST(Imbalance, hashing_spreads_a_full_range_and_ranges_do_not) {
  constexpr int kRanks = 8;
  const Inputs inputs = make_inputs(Pattern::one_range, kRanks, 65537, DType::f32, 3);
  const auto imbalance = [&](const char* scheme) {
    ThreadGroup group(kRanks);
    return run_job(group, {.scheme = scheme, .inputs = inputs}).reports[0].imbalance;
  };
  EXPECT_NEAR(imbalance("sparse_ps"), kRanks, 0.05);
  // 1 + sqrt(2 ln n * n * g / nnz) with g = 32 non-zeros in a word and 4096 in all.
  EXPECT_LT(imbalance("balanced_parallelism"), 1.51);
}

}  // namespace
}  // namespace zen
