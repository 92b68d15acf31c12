// Theorem 1 by counting: no combination of the paper's four dimensions moves fewer bytes than the
// better of balanced parallelism and hierarchical centralisation.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/design_space.h"
#include "index_patterns.h"

namespace zen {
namespace {

using Densification = std::vector<double>;

Densification tabulate(size_t n, const std::function<double(double)>& gamma) {
  Densification values;
  for (size_t ranks = 1; ranks <= n; ++ranks) values.push_back(gamma(static_cast<double>(ranks)));
  return values;
}

// Every rank shares a fraction p of its non-zeros with what has been summed before.
Densification pairwise_overlap(size_t n, double p) {
  return tabulate(n, [p](double ranks) { return (1 - std::pow(1 - p, ranks)) / p; });
}

Densification random_walk(size_t n, uint64_t seed) {
  SplitMix64 random(seed);
  Densification values = {1};
  const double steepness = random.uniform();
  while (values.size() < n) values.push_back(values.back() + steepness * random.uniform());
  return values;
}

// Unions of word batches, as an embedding layer has them.
Densification zipf_unions(size_t n) {
  constexpr uint32_t kRows = 20'000;
  const ZipfRows rows(kRows, 1.149);
  std::vector<bool> seen(kRows, false);
  Densification values;
  double united = 0;
  for (size_t rank = 0; rank < n; ++rank) {
    for (const uint32_t row : rows.batch(1'030, rank)) {
      united += !seen[row];
      seen[row] = true;
    }
    values.push_back(united);
  }
  // Later ranks may bring more than the first: gamma_k <= k holds for the mean rank only.
  const double first = values[0];
  for (size_t rank = 0; rank < n; ++rank)
    values[rank] = std::min(values[rank] / first, static_cast<double>(rank + 1));
  return values;
}

std::vector<Densification> densifications(size_t n) {
  std::vector<Densification> all = {zipf_unions(n), tabulate(n, [](double k) { return k; }),
                                    tabulate(n, [](double) { return 1.0; })};
  for (const double p : {1e-4, 0.01, 0.02, 0.05, 0.3, 0.9}) all.push_back(pairwise_overlap(n, p));
  for (const double a : {0.2, 0.5, 0.8})
    all.push_back(tabulate(n, [a](double k) { return std::pow(k, a); }));
  for (const double density : {0.05, 0.4})  // saturates when the sum is dense
    all.push_back(tabulate(n, [density](double k) { return std::min(k, 1 / density); }));
  for (uint64_t seed = 0; seed < 20; ++seed) all.push_back(random_walk(n, seed));
  return all;
}

double best_of_the_two(const Overlap& overlap) {
  return std::min(relative_bytes(kBalancedParallelism, overlap),
                  relative_bytes(kHierarchicalCentralisation, overlap));
}

TEST(Theorem1, design_space_has_18_combinations) {
  const auto all = all_combinations();
  EXPECT_EQ(all.size(), 18u);
  EXPECT_EQ(std::count(all.begin(), all.end(), kBalancedParallelism), 1);
  EXPECT_EQ(std::count(all.begin(), all.end(), kHierarchicalCentralisation), 1);
  EXPECT_EQ(name_of(kBalancedParallelism), "point-to-point, incremental, parallel, balanced");
}

TEST(Theorem1, no_combination_beats_the_better_of_the_two) {
  for (const size_t n : {2, 4, 8, 16, 128, 1024})
    for (const Densification& densification : densifications(n))
      for (const double share : {0.0, 0.1, 0.5, 1.0}) {
        const Overlap overlap{densification, 1 + share * (static_cast<double>(n) - 1)};
        const double best = best_of_the_two(overlap);
        for (const Combination& combination : all_combinations())
          EXPECT_GE(relative_bytes(combination, overlap), best * (1 - 1e-12))
              << name_of(combination) << ", n = " << n << ", gamma_n = " << densification.back()
              << ", skew = " << overlap.skew;
      }
}

// Lemmas 1 and 2, each within its half of the space.
TEST(Theorem1, lemmas_hold_within_their_partition) {
  for (const size_t n : {2, 16, 128})
    for (const Densification& densification : densifications(n)) {
      const Overlap overlap{densification, static_cast<double>(n) / 2};
      for (const Combination& combination : all_combinations()) {
        const bool centralised = combination.partition == Partition::centralised;
        EXPECT_GE(relative_bytes(combination, overlap),
                  (1 - 1e-12) * relative_bytes(centralised ? kHierarchicalCentralisation
                                                           : kBalancedParallelism,
                                               overlap))
            << name_of(combination);
      }
    }
}

TEST(Theorem1, each_of_the_two_is_needed) {
  const auto winner = [](double p) {
    const Densification densification = pairwise_overlap(16, p);
    const Overlap overlap{densification};
    return relative_bytes(kBalancedParallelism, overlap) <
           relative_bytes(kHierarchicalCentralisation, overlap);
  };
  EXPECT_FALSE(winner(0.01)) << "almost disjoint tensors: hierarchical centralisation";
  EXPECT_TRUE(winner(0.02));
  EXPECT_TRUE(winner(0.05)) << "the paper: 0.05 is enough at n = 16";
}

// Equations (1) and (2) over 2 d M / b, at n = 16.
TEST(Theorem1, costs_are_the_papers_equations) {
  struct Row {
    Densification densification;
    double hierarchical, balanced;
  };
  const Row rows[] = {{tabulate(16, [](double) { return 1.0; }), 4, 1.875},
                      {tabulate(16, [](double k) { return k; }), 15, 15.9375},
                      {pairwise_overlap(16, 0.01), 14.66, 14.86},
                      {pairwise_overlap(16, 0.05), 13.39, 11.44},
                      {pairwise_overlap(16, 0.3), 8.37, 4.05}};
  for (const Row& row : rows) {
    const Overlap overlap{row.densification, 7};  // neither depends on skew
    EXPECT_NEAR(relative_bytes(kHierarchicalCentralisation, overlap), row.hierarchical, 0.006);
    EXPECT_NEAR(relative_bytes(kBalancedParallelism, overlap), row.balanced, 0.006);
  }
}

// Sparse PS pays for skew in the push; its pull is the cheaper of unicast and broadcast.
TEST(Theorem1, skew_costs_what_it_says) {
  const Densification densification = pairwise_overlap(4, 0.3);
  const Combination unbalanced = {Communication::point_to_point, Aggregation::incremental,
                                  Partition::parallel_unbalanced};
  const double even = relative_bytes(unbalanced, {densification, 1});
  EXPECT_DOUBLE_EQ(even, relative_bytes(kBalancedParallelism, {densification, 1}));
  const double gamma_n = densification.back();
  const double broadcast = 2 * 3 / 4.0 * gamma_n;  // cheaper than unicast at this skew
  EXPECT_DOUBLE_EQ(relative_bytes(unbalanced, {densification, 3}), 3 * 3 / 4.0 + broadcast);
}

}  // namespace
}  // namespace zen
