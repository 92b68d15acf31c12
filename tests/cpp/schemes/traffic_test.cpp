// The bytes on the wire are those of docs/schemes.md, for every scheme, counted against formulas of
// the inputs alone.
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <map>
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

Listed part_of(const Listed& elements, const Placement& placement, int owner) {
  Listed result;
  for (const uint64_t elem : elements)
    if (placement.owner_of_element(elem) == owner) result.insert(elem);
  return result;
}

// S(k) of docs/schemes.md: bytes of the message that lists these elements of the shard.
using Size = uint64_t (*)(const Listed& elements, const Shard& shard, DType dtype);

uint64_t pad(uint64_t bytes) {
  return (bytes + 7) / 8 * 8;
}

uint64_t coo(const Listed& elements, const Shard&, DType dtype) {
  if (elements.empty()) return kHeaderBytes;
  return kHeaderBytes + pad(elements.size() * size_of(dtype)) + pad(elements.size() * 4);
}

uint64_t coo_or_dense(const Listed& elements, const Shard& shard, DType dtype) {
  return std::min(kHeaderBytes + shard.elements * size_of(dtype), coo(elements, shard, dtype));
}

uint64_t bitmap(const Listed& elements, const Shard& shard, DType dtype) {
  return kHeaderBytes + pad(elements.size() * size_of(dtype)) + shard.slots * 8;
}

uint64_t blocks(const Listed& elements, const Shard& shard, DType dtype) {
  const uint64_t begin = shard.slots ? shard.word(0) * kWordElems : 0;
  std::set<uint64_t> present;
  for (const uint64_t elem : elements) present.insert((elem - begin) / kBlock);
  uint64_t values = 0;
  for (const uint64_t block : present)
    values += std::min(kBlock, shard.elements - block * kBlock) * size_of(dtype);
  return kHeaderBytes + pad(values) + pad(((shard.slots + 3) / 4 + 7) / 8);
}

// As the codec counts it before it writes; message_size_test.cpp looks after the numbers.
uint64_t cheapest(const Listed& elements, const Shard& shard, DType dtype) {
  Values values(kElements, 0);
  for (const uint64_t elem : elements) values[elem] = 1;
  scheme_test::Bytes bytes = pack(values, dtype);
  CpuDevice device;
  const Gradient gradient{{bytes.data(), bytes.size(), nullptr}, dtype, kElements};
  const Selection selection = device.select(gradient, *shard.placement, shard.placement->all());
  return encoded_bytes(selection[static_cast<size_t>(shard.owner)], Choice::cheapest);
}

// The lower line: what is left if positions and headers cost nothing.
uint64_t values_only(const Listed& elements, const Shard&, DType dtype) {
  return elements.size() * size_of(dtype);
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
    return Placement::make(kind, kElements, kind == PlacementKind::whole ? 1 : ranks(), 1);
  }

  // S(k_r^j), and S(u^j).
  uint64_t push_bytes(int rank, const Placement& owners, int owner, Size size) const {
    return size(part_of(lists[rank], owners, owner), owners.shard(owner, owners.all()), dtype());
  }
  uint64_t sum_bytes(const Placement& owners, int owner, Size size) const {
    return size(part_of(all, owners, owner), owners.shard(owner, owners.all()), dtype());
  }

  uint64_t pushed(int rank, const Placement& owners, Size size) const {
    uint64_t sum = 0;
    for (int owner = 0; owner < ranks(); ++owner)
      if (owner != rank) sum += push_bytes(rank, owners, owner, size);
    return sum;
  }

  uint64_t push_and_pull(int rank, PlacementKind kind, Size push, Size pull) const {
    const auto owners = placement(kind);
    return pushed(rank, *owners, push) + (ranks() - 1) * sum_bytes(*owners, rank, pull);
  }

  // A rank `distance` behind the owner passes the sum on once for every power of two that is larger
  // than the distance and does not lead around the circle.
  uint64_t binomial_trees(int rank) const {
    const auto owners = placement(PlacementKind::ranges);
    uint64_t expected = pushed(rank, *owners, coo);
    for (int owner = 0; owner < ranks(); ++owner) {
      const int distance = (rank - owner + ranks()) % ranks();
      for (int reach = 1; distance + reach < ranks(); reach *= 2)
        if (distance < reach) expected += sum_bytes(*owners, owner, coo);
    }
    return expected;
  }

  // F_q(j): piece q of owner j's sum, with a header of its own.
  uint64_t piece_bytes(const Placement& owners, int owner, int piece) const {
    const uint64_t sum = sum_bytes(owners, owner, coo), n = ranks(), q = piece;
    return kHeaderBytes + sum * (q + 1) / n - sum * q / n;
  }

  uint64_t scatter_and_gather(int rank) const {
    const auto owners = placement(PlacementKind::ranges);
    uint64_t expected = pushed(rank, *owners, coo);
    for (int other = 0; other < ranks(); ++other) {
      if (other == rank) continue;
      expected += piece_bytes(*owners, rank, other);
      expected += (ranks() - 2) * piece_bytes(*owners, other, rank);
    }
    return expected + (ranks() - 1) * piece_bytes(*owners, rank, rank);
  }

  uint64_t recursive_doubling(int rank, Size size) const {
    const auto whole = placement(PlacementKind::whole);
    const auto bytes = [&](const Listed& elements, DType type) {
      return size(elements, whole->shard(0, whole->all()), type);
    };
    const int steps = std::bit_width(static_cast<unsigned>(ranks())) - 1;
    const int folded = ranks() - (1 << steps);
    const bool in_pair = rank < 2 * folded;
    if (in_pair && rank % 2 == 1) return bytes(lists[rank], dtype());
    const int number = in_pair ? rank / 2 : rank - folded;
    uint64_t expected = in_pair ? bytes(all, dtype()) : 0;
    for (int step = 0; step < steps; ++step) {
      // The sum of 2^step neighbouring participants.
      const int first = number >> step << step;
      const auto rank_of = [&](int n) { return n < folded ? 2 * n : n + folded; };
      const int from = rank_of(first), to = rank_of(first + (1 << step));
      const DType type = step > 0 || in_pair ? DType::f32 : dtype();
      expected += bytes(together(lists, from, to - from), type);
    }
    return expected;
  }

  uint64_t expected(const std::string& scheme, int rank) const {
    const uint64_t dense = kElements * size_of(dtype()), others = ranks() - 1;
    const auto whole = placement(PlacementKind::whole);
    if (scheme == "allreduce") return 2 * dense * others / ranks();
    if (scheme == "agsparse") return others * push_bytes(rank, *whole, 0, coo);
    if (scheme == "sparcml") return recursive_doubling(rank, coo_or_dense);
    if (scheme == "sparcml_coo") return recursive_doubling(rank, coo);
    if (scheme == "hierarchical") return recursive_doubling(rank, cheapest);
    if (scheme == "omnireduce") return push_and_pull(rank, PlacementKind::ranges, blocks, blocks);
    if (scheme == "sparse_ps") return push_and_pull(rank, PlacementKind::ranges, coo, coo);
    if (scheme == "sparse_ps_broadcast") return binomial_trees(rank);
    if (scheme == "sparse_ps_scatter_allgather") return scatter_and_gather(rank);
    if (scheme == "zen_paper")
      return push_and_pull(rank, PlacementKind::hashed_elements, coo, bitmap);
    if (scheme == "zen_paper_coo_pull")
      return push_and_pull(rank, PlacementKind::hashed_elements, coo, coo);
    if (scheme == "balanced_parallelism")
      return push_and_pull(rank, PlacementKind::hashed, cheapest, cheapest);
    ADD_FAILURE() << "no formula for " << scheme << ": docs/schemes.md should have one";
    return 0;
  }
};

TEST_P(TrafficTest, every_scheme_sends_the_bytes_of_its_formula) {
  for (const Scheme& scheme : schemes()) {
    const std::string name(scheme.name);
    const auto sent = sent_by(name);
    for (int rank = 0; rank < ranks(); ++rank)
      EXPECT_EQ(sent[rank], expected(name, rank)) << name << ", rank " << rank;
  }
}

TEST_P(TrafficTest, balanced_parallelism_lies_between_pairs_and_values_alone) {
  const auto sent = sent_by("balanced_parallelism");
  for (int rank = 0; rank < ranks(); ++rank) {
    EXPECT_LE(sent[rank],
              push_and_pull(rank, PlacementKind::hashed, coo, coo) + 2 * (ranks() - 1) * 16);
    EXPECT_GE(sent[rank], push_and_pull(rank, PlacementKind::hashed, values_only, values_only) +
                              2 * (ranks() - 1) * kHeaderBytes);
  }
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
    if (scheme.packs_values) {
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
