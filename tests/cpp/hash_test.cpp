#include "core/hash.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace zen {
namespace {

// From the reference implementation, MurmurHash3.cpp.
TEST(Hash, finaliser_has_the_published_values) {
  EXPECT_EQ(fmix32(0), 0u);
  EXPECT_EQ(fmix32(1), 0x514e28b7u);
  EXPECT_EQ(fmix32(2), 0x30f4c306u);
  EXPECT_EQ(fmix32(0xffffffffu), 0x81f16f39u);
}

// Ranks with different builds must agree: these may never change within a wire version.
TEST(Hash, seeded_values_are_pinned) {
  EXPECT_EQ(hash_word(0, 0), fmix32(0));
  EXPECT_EQ(hash_word(7, 0), fmix32(7));
  EXPECT_EQ(hash_word(0, 1), fmix32(0x514e28b7u));
  EXPECT_EQ(hash_word(1, 42), fmix32(1 ^ fmix32(42)));
}

TEST(Hash, owner_covers_its_range_and_keeps_order) {
  EXPECT_EQ(owner_of_hash(0, 65535), 0);
  EXPECT_EQ(owner_of_hash(0xffffffffu, 65535), 65534);
  EXPECT_EQ(owner_of_hash(0xffffffffu, 1), 0);
  EXPECT_EQ(owner_of_hash(0x7fffffffu, 2), 0);
  EXPECT_EQ(owner_of_hash(0x80000000u, 2), 1);
}

// Every input bit flips each output bit in half of the cases: 4,096 trials, five standard
// deviations (0.5 / 64 each) allowed.
TEST(Hash, one_input_bit_flips_half_of_the_output) {
  constexpr uint32_t kTrials = 4096;
  for (int in = 0; in < 32; ++in) {
    std::array<int, 32> flips{};
    for (uint32_t x = 0; x < kTrials; ++x) {
      const uint32_t word = x * 0x9e3779b9u;
      const uint32_t change = hash_word(word, 5) ^ hash_word(word ^ (1u << in), 5);
      for (int out = 0; out < 32; ++out) flips[out] += change >> out & 1;
    }
    for (int out = 0; out < 32; ++out)
      EXPECT_NEAR(flips[out] / double{kTrials}, 0.5, 0.5 / 64 * 5) << in << " -> " << out;
  }
}

}  // namespace
}  // namespace zen
