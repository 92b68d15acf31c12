#include "schemes/pull_pattern.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

namespace zen {
namespace {

using Pattern = PullPattern (*)(int rank, int size);

// Follows the sums through the rounds, on all ranks at once.
void expect_everybody_gets_everything(Pattern pattern, int size, size_t rounds) {
  std::vector<PullPattern> by_rank;
  std::vector<std::set<int>> has(size);
  for (int rank = 0; rank < size; ++rank) {
    by_rank.push_back(pattern(rank, size));
    has[rank] = {rank};
    ASSERT_EQ(by_rank[rank].size(), rounds);
  }
  for (size_t round = 0; round < rounds; ++round) {
    auto after = has;
    for (size_t i = 0; i < by_rank[0][round].size(); ++i) {
      std::set<std::tuple<int, int, int>> sent, received;  // from, to, owner
      for (int rank = 0; rank < size; ++rank) {
        ASSERT_EQ(by_rank[rank][round].size(), by_rank[0][round].size());
        const PullStep& step = by_rank[rank][round][i];
        std::set<int> peers;
        for (const Route& route : step.send) {
          EXPECT_TRUE(has[rank].contains(route.owner)) << "rank passes on what it has not";
          EXPECT_TRUE(peers.insert(route.peer).second) << "two messages to one peer in a step";
          sent.insert({rank, route.peer, route.owner});
        }
        for (const Route& route : step.receive) {
          EXPECT_TRUE(after[rank].insert(route.owner).second) << "rank receives a sum twice";
          received.insert({route.peer, rank, route.owner});
        }
      }
      EXPECT_EQ(sent, received);
    }
    has = after;
  }
  for (const auto& owners : has) EXPECT_EQ(owners.size(), static_cast<size_t>(size));
}

TEST(PullPattern, point_to_point_reaches_everybody_in_one_round) {
  for (int size = 1; size <= 17; ++size) expect_everybody_gets_everything(point_to_point, size, 1);
}

TEST(PullPattern, binomial_trees_reach_everybody_in_log2_rounds) {
  for (int size = 1; size <= 33; ++size) {
    size_t rounds = 0;
    while (1 << rounds < size) ++rounds;
    expect_everybody_gets_everything(binomial_trees, size, rounds);
  }
}

TEST(PullPattern, binomial_tree_sends_each_sum_at_most_once_a_round) {
  for (const PullRound& round : binomial_trees(3, 16)) {
    std::map<int, int> sends;
    for (const PullStep& step : round)
      for (const Route& route : step.send) EXPECT_EQ(++sends[route.owner], 1);
  }
}

}  // namespace
}  // namespace zen
