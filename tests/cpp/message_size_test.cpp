// How close the messages come to the entropy of what they say, with 16-bit values, for real encoded
// messages of one rank to 16 owners; and that docs/wire-format.md shows what comes out.
#include "message_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

namespace zen {
namespace {

using test::heap_buffer;

// The rows of the table that follows "<!-- table: NAME -->" on the page.
std::vector<std::string> rows_of_page(const std::string& name) {
  const std::string path = ZENSYNC_SOURCE_DIR "/docs/wire-format.md";
  std::ifstream page(path);
  EXPECT_TRUE(page) << "cannot read " << path;
  std::vector<std::string> rows;
  std::string line;
  while (std::getline(page, line) && line != "<!-- table: " + name + " -->") {
  }
  for (int number = 0; std::getline(page, line) && line.starts_with("|"); ++number)
    if (number >= 2) rows.push_back(line);  // the heading and the line below it
  return rows;
}

constexpr const char* kHint = "docs/wire-format.md: `make bench BENCH=bytes` prints its tables";

TEST(MessageSize, overheads_keep_their_promise_and_are_those_of_the_page) {
  std::vector<std::string> rows;
  for (const auto& [name, row, most] : {std::tuple{"scattered elements", 1, 1.05},
                                        {"aligned rows of 64", 64, 1.02},
                                        {"aligned rows of 512", 512, 1.02}}) {
    std::vector<double> overheads;
    for (const double density : test::kOverheadDensities) {
      overheads.push_back(test::overhead(density, static_cast<uint64_t>(row)));
      EXPECT_LE(overheads.back(), most) << name << ", density " << density;
      EXPECT_GE(overheads.back(), 1.0) << name << ", density " << density;
    }
    rows.push_back(test::overhead_row(name, overheads));
  }
  EXPECT_EQ(rows_of_page("overheads"), rows) << kHint;
}

TEST(MessageSize, bytes_with_sixteen_ranks_are_those_of_the_page) {
  EXPECT_EQ(rows_of_page("bytes"), test::bytes_rows()) << kHint;
}

// Short rows are neither scattered nor whole words; nothing is promised but that no encoding that
// sees only elements or only words wins against the cheapest.
TEST(MessageSize, short_rows_take_the_words_encoding) {
  const auto placement = Placement::make(PlacementKind::ranges, 1 << 20, 1, 0);
  const Shard shard = placement->shard(0, placement->all());
  std::mt19937_64 random(3);
  const auto chosen = test::choose(shard.elements / 32, 0.01, random);
  const Buffer message =
      encode(test::select_rows(shard, chosen, 32), Choice::cheapest, Identity{}, heap_buffer);
  EXPECT_EQ(read_header(message.span()).encoding, Encoding::words);
}

TEST(MessageSize, one_in_a_hundred_thousand_costs_no_more) {
  EXPECT_LE(test::overhead(0.00001, 1), 1.05);
}

TEST(MessageSize, one_giant_row_costs_its_values_and_little_more) {
  const auto placement = Placement::make(PlacementKind::ranges, 1 << 24, 1, 0);
  const Shard shard = placement->shard(0, placement->all());
  constexpr uint64_t kRow = 1 << 20;
  const Buffer message =
      encode(test::select_rows(shard, {3}, kRow), Choice::cheapest, Identity{}, heap_buffer);
  EXPECT_LE(message.bytes, kHeaderBytes + kRow * 2 + kRow / 64);  // a byte for each word
}

TEST(MessageSize, nothing_costs_a_header_and_everything_costs_the_values) {
  const auto placement = Placement::make(PlacementKind::ranges, 8192, 1, 0);
  const Shard shard = placement->shard(0, placement->all());
  EXPECT_EQ(encoded_bytes(test::select_rows(shard, {}, 64), Choice::cheapest), kHeaderBytes);
  std::vector<uint64_t> all(128);
  for (uint64_t row = 0; row < all.size(); ++row) all[row] = row;
  EXPECT_EQ(encoded_bytes(test::select_rows(shard, all, 64), Choice::cheapest),
            kHeaderBytes + shard.elements * 2);
}

}  // namespace
}  // namespace zen
