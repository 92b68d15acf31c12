// Every instruction set must write the same bytes and accept and refuse the same lists.
#include "core/position_kernels.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "selections.h"

namespace zen {
namespace {

using test::heap_buffer;

using Words = std::vector<uint64_t>;

class PositionKernels : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!supported(GetParam())) GTEST_SKIP() << "not supported by this processor";
  }
};

struct Whole {
  explicit Whole(uint64_t numel)
      : placement(Placement::make(PlacementKind::whole, numel, 1, 0)),
        shard(placement->shard(0, placement->all())) {}
  std::shared_ptr<const Placement> placement;
  Shard shard;
};

Words written(const ShardSelection& selection, Isa isa) {
  const EliasFano layout(selection.count, selection.shard.elements);
  const Buffer out = heap_buffer(layout.bytes());  // a sanitizer sees what is written past the end
  write_positions(selection, layout, words_of(out), isa);
  return {words_of(out), words_of(out) + layout.words()};
}

// What `words` say, or the error.
struct Outcome {
  Words presence, masks;
  bool refused = false;
  bool operator==(const Outcome&) const = default;
};

Outcome read(const Shard& shard, uint64_t count, uint64_t present_words, const Words& words,
             Isa isa) {
  Header header;
  header.count = count;
  header.present_words = static_cast<uint32_t>(present_words);
  const Buffer copy = heap_buffer(words.size() * 8);  // exactly as long as the list
  if (!words.empty()) std::memcpy(copy.data, words.data(), words.size() * 8);
  const std::shared_ptr<void> owner;
  const Allocate allocate = heap_buffer;
  const std::span<const uint64_t> list(words_of(copy), words.size());
  const EliasFano layout(count, shard.elements);
  Outcome outcome;
  try {
    check_shape(layout, list);
    const NormalForm normal = read_positions({header, shard, list, owner, allocate}, layout, isa);
    outcome.presence.assign(words_of(normal.presence),
                            words_of(normal.presence) + normal.presence.bytes / 8);
    outcome.masks.assign(words_of(normal.masks), words_of(normal.masks) + normal.masks.bytes / 8);
    // open() refuses these for every encoding, so a kernel may leave them to it.
    if (!outcome.masks.empty() && bit_at(outcome.presence.data(), shard.slots - 1))
      outcome.refused = (outcome.masks.back() & ~low_bits(shard.last_slot_elements())) != 0;
  } catch (const MalformedMessage&) {
    outcome.refused = true;
  }
  return outcome.refused ? Outcome{{}, {}, true} : outcome;
}

const double kDensities[] = {0.0005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.24, 0.4, 0.7, 1};
const uint64_t kSizes[] = {1, 63, 64, 65, 129, 1000, 4096, 30011};

std::vector<test::Listed> patterns(double density) {
  const auto some = test::uniform(density, 3);
  const auto dense_stretch = [=](uint64_t elem) {
    return some(elem) || (elem >= 640 && elem < 640 + 300);
  };
  const auto end_only = [](uint64_t elem) { return elem > 29000; };
  return {some, dense_stretch, test::rows(density, 16, 4), end_only};
}

TEST_P(PositionKernels, write_the_bytes_of_the_plain_version_and_read_them_back) {
  for (const uint64_t numel : kSizes)
    for (const double density : kDensities)
      for (const test::Listed& listed : patterns(density)) {
        SCOPED_TRACE(testing::Message() << numel << " elements, density " << density);
        const Whole whole(numel);
        const ShardSelection selection = test::select_if(whole.shard, DType::bf16, listed);
        const Words words = written(selection, GetParam());
        EXPECT_EQ(words, written(selection, Isa::scalar));
        const Outcome outcome =
            read(whole.shard, selection.count, selection.present_words, words, GetParam());
        EXPECT_FALSE(outcome.refused);
        EXPECT_EQ(outcome.masks,
                  Words(selection.mask_list(), selection.mask_list() + selection.present_words));
      }
}

// Any change of a list: two lists of positions may not differ in what is made of them.
TEST_P(PositionKernels, accept_and_refuse_what_the_plain_version_does) {
  std::mt19937_64 random(1);
  for (const double density : {0.01, 0.02, 0.04, 0.08, 0.15, 0.24, 0.4})
    for (int trial = 0; trial < 500; ++trial) {
      const Whole whole(700 + random() % 64);
      const ShardSelection selection =
          test::select_if(whole.shard, DType::bf16, test::uniform(density, random() % 16));
      Words words = written(selection, Isa::scalar);
      if (words.empty()) continue;
      for (uint64_t flips = 1 + random() % 2; flips > 0; --flips)
        words[random() % words.size()] ^= uint64_t{1} << random() % 64;
      // Moves a one of the high string, which keeps its shape.
      const EliasFano layout(selection.count, whole.shard.elements);
      uint64_t* high = words.data() + layout.low_words();
      const uint64_t from = random() % layout.high_bits(), to = random() % layout.high_bits();
      if (bit_at(high, from) != bit_at(high, to)) {
        high[from / 64] ^= uint64_t{1} << from % 64;
        high[to / 64] ^= uint64_t{1} << to % 64;
      }
      const uint64_t present = selection.present_words + random() % 3 - 1;
      ASSERT_EQ(read(whole.shard, selection.count, present, words, GetParam()),
                read(whole.shard, selection.count, present, words, Isa::scalar))
          << "density " << density << ", trial " << trial;
    }
}

// Pairs of neighbours, so that changing a low part puts many of them out of order or makes them
// equal.
TEST_P(PositionKernels, refuse_two_numbers_out_of_order) {
  for (const uint64_t step : {8, 16, 32, 64, 128}) {  // low parts of 2 to 6 bits
    const Whole whole(1024);
    const ShardSelection selection =
        test::select_if(whole.shard, DType::bf16, [=](uint64_t elem) { return elem % step < 2; });
    const uint64_t width = EliasFano(selection.count, 1024).low_width();
    ASSERT_EQ(uint64_t{1} << width, step / 2);
    const Words good = written(selection, Isa::scalar);
    for (uint64_t bit = 0; bit < selection.count * width; ++bit) {
      Words words = good;
      words[bit / 64] ^= uint64_t{1} << bit % 64;
      // The first of a pair becomes at least the second, or the second becomes equal to the first.
      const bool first = bit / width % 2 == 0, lowest = bit % width == 0;
      EXPECT_EQ(
          read(whole.shard, selection.count, selection.present_words, words, GetParam()).refused,
          first || lowest)
          << "step " << step << ", low bit " << bit;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PositionKernels, testing::Values(Isa::scalar, Isa::avx2),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace zen
