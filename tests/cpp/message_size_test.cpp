// How close the messages come to the entropy of what they say, with 16-bit values, for real encoded
// messages of one rank to 16 owners. The sizes depend on counts alone, so positions are drawn in
// slot order and the owners are ranges.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "core/codec.h"
#include "selections.h"

namespace zen {
namespace {

using test::heap_buffer;

constexpr int kOwners = 16;
constexpr double kLn2 = 0.6931471805599453;

// log2 of the number of ways to choose `count` of `total` things.
double choice_bits(double total, double count) {
  return (std::lgamma(total + 1) - std::lgamma(count + 1) - std::lgamma(total - count + 1)) / kLn2;
}

// Chosen with probability `density` each, by their gaps.
std::vector<uint64_t> choose(uint64_t total, double density, std::mt19937_64& random) {
  std::geometric_distribution<uint64_t> gap(density);
  std::vector<uint64_t> chosen;
  for (uint64_t at = gap(random); at < total; at += 1 + gap(random)) chosen.push_back(at);
  return chosen;
}

// Lists rows of `row` elements: presence, masks and counts, with values left as they are.
ShardSelection select_rows(const Shard& shard, const std::vector<uint64_t>& rows, uint64_t row) {
  ShardSelection selection;
  selection.shard = shard;
  selection.dtype = DType::bf16;
  selection.presence = heap_buffer(shard.presence_words() * 8);
  auto* presence = reinterpret_cast<uint64_t*>(selection.presence.data);
  std::fill_n(presence, shard.presence_words(), uint64_t{0});
  std::vector<uint64_t> masks;
  for (const uint64_t number : rows)
    for (uint64_t elem = number * row; elem < (number + 1) * row;) {
      const uint64_t slot = elem / kWordElems, length = std::min(row, kWordElems);
      if (!bit_at(presence, slot)) masks.push_back(0);
      set_bit(presence, slot);
      masks.back() |= low_bits(length) << elem % kWordElems;
      elem += length;
    }
  for (const uint64_t mask : masks) selection.full_words += mask == ~uint64_t{0};
  selection.count = rows.size() * row;
  selection.present_words = masks.size();
  selection.masks = heap_buffer(masks.size() * 8);
  if (!masks.empty()) std::memcpy(selection.masks.data, masks.data(), masks.size() * 8);
  selection.message = heap_buffer(kHeaderBytes + selection.count * 2);
  return selection;
}

// Total bytes of the cheapest messages over (entropy of the positions + values).
double overhead(double density, uint64_t row) {
  // Enough to make headers and padding small: 16,000 values a message, 8 million elements in all.
  const double wanted = std::max(8e6, kOwners * 16000 / density);
  const uint64_t numel = static_cast<uint64_t>(wanted) / (kOwners * 512) * (kOwners * 512);
  const auto placement = Placement::make(PlacementKind::ranges, numel, kOwners, 0);
  std::mt19937_64 random(7);
  double bytes = 0, ideal_bits = 0;
  for (int owner = 0; owner < kOwners; ++owner) {
    const Shard shard = placement->shard(owner, placement->all());
    const auto chosen = choose(shard.elements / row, density, random);
    ideal_bits +=
        choice_bits(static_cast<double>(shard.elements / row), static_cast<double>(chosen.size())) +
        16.0 * static_cast<double>(chosen.size() * row);
    const Buffer message =
        encode(select_rows(shard, chosen, row), Choice::cheapest, Identity{}, heap_buffer);
    bytes += static_cast<double>(message.bytes);
  }
  return bytes * 8 / ideal_bits;
}

constexpr double kDensities[] = {0.0001, 0.001, 0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.6};

TEST(MessageSize, scattered_elements_cost_at_most_five_percent_over_the_entropy) {
  for (const double density : kDensities) {
    const double found = overhead(density, 1);
    RecordProperty("density_" + std::to_string(density), std::to_string(found));
    EXPECT_LE(found, 1.05) << "density " << density;
    EXPECT_GE(found, 1.0) << "density " << density;
  }
}

TEST(MessageSize, rows_cost_at_most_two_percent_over_the_entropy) {
  for (const uint64_t row : {64, 512})
    for (const double density : kDensities) {
      const double found = overhead(density, row);
      RecordProperty("rows_" + std::to_string(row) + "_density_" + std::to_string(density),
                     std::to_string(found));
      EXPECT_LE(found, 1.02) << "rows of " << row << ", density " << density;
      EXPECT_GE(found, 1.0) << "rows of " << row << ", density " << density;
    }
}

// Short rows are neither scattered nor whole words; nothing is promised but that no encoding that
// sees only elements or only words wins against the cheapest.
TEST(MessageSize, short_rows_take_the_words_encoding) {
  const auto placement = Placement::make(PlacementKind::ranges, 1 << 20, 1, 0);
  const Shard shard = placement->shard(0, placement->all());
  std::mt19937_64 random(3);
  const auto chosen = choose(shard.elements / 32, 0.01, random);
  const Buffer message =
      encode(select_rows(shard, chosen, 32), Choice::cheapest, Identity{}, heap_buffer);
  EXPECT_EQ(read_header(message.span()).encoding, Encoding::words);
}

TEST(MessageSize, nothing_costs_a_header_and_everything_costs_the_values) {
  const auto placement = Placement::make(PlacementKind::ranges, 8192, 1, 0);
  const Shard shard = placement->shard(0, placement->all());
  EXPECT_EQ(encoded_bytes(select_rows(shard, {}, 64), Choice::cheapest), kHeaderBytes);
  std::vector<uint64_t> all(128);
  for (uint64_t row = 0; row < all.size(); ++row) all[row] = row;
  EXPECT_EQ(encoded_bytes(select_rows(shard, all, 64), Choice::cheapest),
            kHeaderBytes + shard.elements * 2);
}

}  // namespace
}  // namespace zen
