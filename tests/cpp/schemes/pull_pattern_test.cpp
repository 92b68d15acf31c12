#include "schemes/pull_pattern.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace zen {
namespace {

using Pattern = PullPattern (*)(int rank, int size);

// Follows the pieces of the sums through the rounds, on all ranks at once.
void expect_everybody_gets_everything(Pattern pattern, int size, int pieces, size_t rounds) {
  using Part = std::pair<int, int>;  // owner, piece
  std::vector<PullPattern> by_rank;
  std::vector<std::set<Part>> has(size);
  for (int rank = 0; rank < size; ++rank) {
    by_rank.push_back(pattern(rank, size));
    for (int piece = 0; piece < pieces; ++piece) has[rank].insert({rank, piece});
    ASSERT_EQ(by_rank[rank].pieces, pieces);
    ASSERT_EQ(by_rank[rank].rounds.size(), rounds);
  }
  for (size_t round = 0; round < rounds; ++round) {
    auto after = has;
    const size_t steps = by_rank[0].rounds[round].size();
    for (size_t i = 0; i < steps; ++i) {
      std::set<std::tuple<int, int, Part>> sent, received;  // from, to, what
      for (int rank = 0; rank < size; ++rank) {
        ASSERT_EQ(by_rank[rank].rounds[round].size(), steps);
        const PullStep& step = by_rank[rank].rounds[round][i];
        std::set<int> peers;
        for (const Route& route : step.send) {
          const Part part{route.owner, route.piece};
          EXPECT_TRUE(has[rank].contains(part)) << "rank passes on what it has not";
          EXPECT_TRUE(peers.insert(route.peer).second) << "two messages to one peer in a step";
          sent.insert({rank, route.peer, part});
        }
        for (const Route& route : step.receive) {
          const Part part{route.owner, route.piece};
          EXPECT_TRUE(after[rank].insert(part).second) << "rank receives a piece twice";
          received.insert({route.peer, rank, part});
        }
      }
      EXPECT_EQ(sent, received);
    }
    has = after;
  }
  for (const auto& parts : has) EXPECT_EQ(parts.size(), static_cast<size_t>(size * pieces));
}

TEST(PullPattern, point_to_point_reaches_everybody_in_one_round) {
  for (int size = 1; size <= 17; ++size)
    expect_everybody_gets_everything(point_to_point, size, 1, 1);
}

TEST(PullPattern, binomial_trees_reach_everybody_in_log2_rounds) {
  for (int size = 1; size <= 33; ++size) {
    size_t rounds = 0;
    while (1 << rounds < size) ++rounds;
    expect_everybody_gets_everything(binomial_trees, size, 1, rounds);
  }
}

TEST(PullPattern, scattered_pieces_reach_everybody_in_two_rounds) {
  for (int size = 1; size <= 17; ++size)
    expect_everybody_gets_everything(scatter_and_gather, size, size, 2);
}

TEST(PullPattern, binomial_tree_sends_each_sum_at_most_once_a_round) {
  for (const PullRound& round : binomial_trees(3, 16).rounds) {
    std::map<int, int> sends;
    for (const PullStep& step : round)
      for (const Route& route : step.send) EXPECT_EQ(++sends[route.owner], 1);
  }
}

}  // namespace
}  // namespace zen
