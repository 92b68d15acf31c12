// How much of a set Algorithm 1 sends to serial memory, for k = 1 to 4 hash functions and parallel
// memory of 1, 2 and 4 times the non-zeros.

#include <gtest/gtest.h>

#include "core/hierarchical_hash.h"
#include "index_patterns.h"

namespace zen {
namespace {

struct Row {
  double r1_ratio;
  double share[4];  // k = 1 ... 4
};

// Balls dropped one after the other, 2e5 of them: good to 0.25 % of the set.
constexpr Row kSequentialModel[] = {
    {1, {0.368, 0.238, 0.179, 0.141}},
    {2, {0.214, 0.076, 0.029, 0.012}},
    {4, {0.115, 0.020, 0.0039, 0.0009}},
};

double measured_share(const IndexSet& I, double r1_ratio, int k, int n, int threads) {
  const auto memory = insert_indices<uint32_t>(
      I, make_hierarchical_hash(PartitionHash(n, 1), 99, k, I.size(), r1_ratio, threads));
  uint64_t serial = 0;
  for (const uint64_t c : memory.c) serial += c - memory.r1;
  return static_cast<double>(serial) / static_cast<double>(I.size());
}

TEST(SerialShare, closed_form_equals_the_sequential_model) {
  for (const Row& row : kSequentialModel)
    for (int k = 1; k <= 4; ++k)
      EXPECT_NEAR(expected_serial_share(1 / row.r1_ratio, k), row.share[k - 1], 0.0025)
          << "r1 " << row.r1_ratio << ", k " << k;
  EXPECT_EQ(expected_serial_share(0, 3), 0);
}

// Budget: 0.4 % of the set, four standard deviations of k = 1 at 2e5 balls, on any pattern.
TEST(SerialShare, algorithm_1_follows_the_closed_form) {
  const uint32_t numel = 4'000'037;
  const IndexSet patterns[] = {uniform_indices(numel, 0.05, 1), run_of_indices(12'345, 200'000),
                               strided_indices(3, 200'000, 16)};
  for (const IndexSet& I : patterns)
    for (const Row& row : kSequentialModel)
      for (int k = 1; k <= 4; ++k)
        EXPECT_NEAR(measured_share(I, row.r1_ratio, k, 8, 1),
                    expected_serial_share(1 / row.r1_ratio, k), 0.004)
            << "r1 " << row.r1_ratio << ", k " << k;
}

// Threads change who takes which slot, not how many are taken by more than noise.
TEST(SerialShare, is_the_same_with_threads) {
  const IndexSet I = uniform_indices(4'000'037, 0.05, 2);
  for (const int threads : {2, 4})
    EXPECT_NEAR(measured_share(I, 2, 3, 16, threads), expected_serial_share(0.5, 3), 0.003);
}

// Section 3.2: "the collision rate of four hash functions is below 1 %" needs a little more than
// twice the non-zeros.
TEST(SerialShare, below_one_percent_with_four_functions) {
  EXPECT_GT(expected_serial_share(1 / 2.0, 4), 0.01);
  EXPECT_LT(expected_serial_share(1 / 2.2, 4), 0.01);
}

}  // namespace
}  // namespace zen
