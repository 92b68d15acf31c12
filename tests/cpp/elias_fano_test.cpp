#include "core/elias_fano.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "core/error.h"

namespace zen {
namespace {

using Numbers = std::vector<uint64_t>;

Numbers encoded(const Numbers& numbers, uint64_t universe) {
  const EliasFano layout(numbers.size(), universe);
  Numbers words(layout.words(), 0xcdcdcdcdcdcdcdcdu);
  EliasFanoWriter writer(layout, words.data());
  for (const uint64_t number : numbers) writer.push(number);
  writer.finish();
  return words;
}

Numbers decoded(const EliasFano& layout, const Numbers& words) {
  check_shape(layout, words);
  Numbers numbers;
  for_each_number(layout, words, [&](uint64_t number) { numbers.push_back(number); });
  return numbers;
}

Numbers random_numbers(uint64_t count, uint64_t universe, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::set<uint64_t> numbers;
  while (numbers.size() < count) numbers.insert(random() % universe);
  return {numbers.begin(), numbers.end()};
}

TEST(EliasFano, gives_back_the_numbers) {
  for (const uint64_t universe : {uint64_t{1}, uint64_t{2}, uint64_t{63}, uint64_t{64},
                                  uint64_t{65}, uint64_t{1000}, uint64_t{65537}, uint64_t{1} << 38})
    for (const uint64_t count : {0, 1, 2, 3, 31, 32, 33, 64, 500, 1000}) {
      if (count > universe) continue;
      SCOPED_TRACE(testing::Message() << count << " numbers below " << universe);
      const Numbers numbers = random_numbers(count, universe, 1);
      const Numbers words = encoded(numbers, universe);
      EXPECT_EQ(decoded(EliasFano(count, universe), words), numbers);
    }
}

TEST(EliasFano, holds_the_extremes) {
  const uint64_t top = (uint64_t{1} << 38) - 1;
  for (const Numbers& numbers : {Numbers{0}, Numbers{top}, Numbers{0, top}, Numbers{0, 1, 2},
                                 Numbers{top - 2, top - 1, top}})
    EXPECT_EQ(decoded(EliasFano(numbers.size(), top + 1), encoded(numbers, top + 1)), numbers);
}

TEST(EliasFano, all_numbers_of_a_universe_are_ones_and_zeros_in_turn) {
  const Numbers words = encoded({0, 1, 2, 3}, 4);
  EXPECT_EQ(words, Numbers{0b1010101});
}

// 16 = 2^4 numbers below 2^10: 6 low bits each, 16 ones and at most 15 zeros.
TEST(EliasFano, layout_follows_the_formula) {
  const EliasFano layout(16, 1024);
  EXPECT_EQ(layout.low_width(), 6u);
  EXPECT_EQ(layout.low_bits(), 96u);
  EXPECT_EQ(layout.high_bits(), 31u);
  EXPECT_EQ(layout.bytes(), 24u);
  EXPECT_EQ(EliasFano(0, 1024).bytes(), 0u);
}

TEST(EliasFano, costs_at_most_two_bits_and_the_logarithm_for_each_number) {
  for (uint64_t count = 1000; count < 1000000; count = count * 3 / 2) {
    const EliasFano layout(count, 1000000);
    const double bits = static_cast<double>(layout.low_bits() + layout.high_bits());
    EXPECT_LE(bits / static_cast<double>(count), 2 + std::log2(1e6 / static_cast<double>(count)));
  }
}

TEST(EliasFano, never_takes_more_than_two_bits_of_the_universe) {
  for (uint64_t universe = 1; universe < 300; ++universe)
    for (uint64_t count = 0; count <= universe; ++count) {
      const EliasFano layout(count, universe);
      EXPECT_LE(layout.low_bits() + layout.high_bits(), 2 * universe);
    }
}

TEST(EliasFano, refuses_repeated_and_descending_numbers) {
  const EliasFano layout(2, 256);  // 7 low bits: both high parts are 0 for 5 and 5, or 9 and 5
  ASSERT_EQ(layout.low_width(), 7u);
  Numbers words = encoded({5, 9}, 256);
  words[0] = 5 | 5 << 7;
  EXPECT_THROW(decoded(layout, words), MalformedMessage);
  words[0] = 9 | 5 << 7;
  EXPECT_THROW(decoded(layout, words), MalformedMessage);
  words[0] = 5 | 6 << 7;
  EXPECT_EQ(decoded(layout, words), (Numbers{5, 6}));
}

TEST(EliasFano, refuses_a_number_past_the_universe) {
  const EliasFano layout(1, 100);  // 6 low bits, so the last high part ends at 127
  Numbers words = encoded({99}, 100);
  ASSERT_EQ(words, (Numbers{99 - 64, 2}));
  words[0] = 100 - 64;
  EXPECT_THROW(decoded(layout, words), MalformedMessage);
}

TEST(EliasFano, refuses_a_wrong_number_of_ones_and_padding_that_is_not_zero) {
  const EliasFano layout(3, 1000);
  const Numbers good = encoded({1, 2, 900}, 1000);
  for (size_t word = 0; word < good.size(); ++word)
    for (int bit = 0; bit < 64; ++bit) {
      Numbers bad = good;
      bad[word] ^= uint64_t{1} << bit;
      const uint64_t used = word < layout.low_words() ? layout.low_bits() : layout.high_bits();
      const bool low_bit = word < layout.low_words() && static_cast<uint64_t>(bit) < used;
      if (!low_bit) {
        EXPECT_THROW(check_shape(layout, bad), MalformedMessage) << word << ", bit " << bit;
      }
    }
}

}  // namespace
}  // namespace zen
