#include "core/bits.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "core/bits_kernels.h"
#include "core/cpu_features.h"

namespace zen {
namespace {

TEST(Bits, sizes_round_up) {
  EXPECT_EQ(words_for_bits(0), 0u);
  EXPECT_EQ(words_for_bits(1), 1u);
  EXPECT_EQ(words_for_bits(64), 1u);
  EXPECT_EQ(words_for_bits(65), 2u);
  EXPECT_EQ(round_up_8(0), 0u);
  EXPECT_EQ(round_up_8(1), 8u);
  EXPECT_EQ(round_up_8(8), 8u);
}

TEST(Bits, low_bits_reach_from_none_to_all) {
  EXPECT_EQ(low_bits(0), 0u);
  EXPECT_EQ(low_bits(1), 1u);
  EXPECT_EQ(low_bits(63), ~uint64_t{0} >> 1);
  EXPECT_EQ(low_bits(64), ~uint64_t{0});
}

TEST(Bits, fill_leaves_the_padding_clear_and_padding_is_seen) {
  for (const uint64_t bits : {1, 63, 64, 65, 128, 130}) {
    std::vector<uint64_t> words(words_for_bits(bits), 0xcdcdcdcdcdcdcdcdu);
    fill_bits(words.data(), bits);
    for (uint64_t bit = 0; bit < words.size() * 64; ++bit)
      EXPECT_EQ(bit_at(words.data(), bit), bit < bits) << bit << " of " << bits;
    EXPECT_TRUE(padding_is_zero(words, bits));
    if (bits % 64 != 0) {
      set_bit(words.data(), words.size() * 64 - 1);
      EXPECT_FALSE(padding_is_zero(words, bits));
    }
  }
}

TEST(Bits, for_each_bit_ascends) {
  const std::vector<uint64_t> words = {1u | uint64_t{1} << 63, 0, 6};
  std::vector<uint64_t> found;
  for_each_bit(words, [&](uint64_t bit) { found.push_back(bit); });
  EXPECT_EQ(found, (std::vector<uint64_t>{0, 63, 129, 130}));
}

TEST(Bits, count_of_ones_agrees_everywhere) {
  std::mt19937_64 random(1);
  for (const size_t size : {0, 1, 2, 3, 4, 5, 63, 64, 65, 1000}) {
    std::vector<uint64_t> words(size);
    uint64_t expected = 0;
    for (uint64_t& word : words) {
      word = random() & random();
      for (int bit = 0; bit < 64; ++bit) expected += word >> bit & 1;
    }
    EXPECT_EQ(count_ones(words), expected);
    EXPECT_EQ(count_ones_scalar(words.data(), size), expected);
    if (supported(Isa::avx2)) {
      EXPECT_EQ(count_ones_avx2(words.data(), size), expected);
    }
  }
}

}  // namespace
}  // namespace zen
