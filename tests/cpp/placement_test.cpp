#include "core/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/hash.h"

namespace zen {
namespace {

const uint64_t kSizes[] = {0, 1, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097, 10007};

struct Case {
  PlacementKind kind;
  int owners;
};
const Case kCases[] = {{PlacementKind::whole, 1},  {PlacementKind::ranges, 1},
                       {PlacementKind::ranges, 3}, {PlacementKind::ranges, 16},
                       {PlacementKind::hashed, 1}, {PlacementKind::hashed, 2},
                       {PlacementKind::hashed, 7}, {PlacementKind::hashed, 300}};

// Calls f(placement) for every kind, number of owners and size.
template <class F>
void for_all_placements(F&& f) {
  for (const uint64_t numel : kSizes)
    for (const Case& c : kCases) {
      SCOPED_TRACE(testing::Message() << "numel " << numel << ", owners " << c.owners << ", kind "
                                      << static_cast<int>(c.kind));
      f(*Placement::make(c.kind, numel, c.owners, 17));
    }
}

TEST(Placement, every_word_is_exactly_one_slot_and_slots_ascend) {
  for_all_placements([](const Placement& placement) {
    std::vector<int> seen(placement.words(), -1);
    for (int owner = 0; owner < placement.owners(); ++owner)
      for (uint64_t slot = 0; slot < placement.slots(owner); ++slot) {
        const uint64_t word = placement.word(owner, slot);
        ASSERT_LT(word, placement.words());
        EXPECT_EQ(seen[word], -1);
        seen[word] = owner;
        EXPECT_EQ(placement.owner(word), owner);
        if (slot > 0) {
          EXPECT_LT(placement.word(owner, slot - 1), word);
        }
      }
    for (const int owner : seen) EXPECT_NE(owner, -1);
  });
}

TEST(Placement, elements_add_up_to_numel) {
  for_all_placements([](const Placement& placement) {
    uint64_t in_words = 0, in_shards = 0;
    for (uint64_t word = 0; word < placement.words(); ++word) in_words += placement.elements(word);
    for (int owner = 0; owner < placement.owners(); ++owner)
      in_shards += placement.shard(owner, placement.all()).elements;
    EXPECT_EQ(in_words, placement.numel());
    EXPECT_EQ(in_shards, placement.numel());
  });
}

TEST(Placement, shards_of_adjacent_ranges_are_adjacent_and_hold_only_their_range) {
  for_all_placements([](const Placement& placement) {
    for (const int parts : {1, 2, 5}) {
      std::vector<uint64_t> next(placement.owners(), 0);
      for (const WordRange range : placement.split(parts))
        for (int owner = 0; owner < placement.owners(); ++owner) {
          const Shard shard = placement.shard(owner, range);
          if (shard.slots != 0) {
            EXPECT_EQ(shard.first_slot, next[owner]);
          }
          next[owner] += shard.slots;
          uint64_t elements = 0;
          for (uint64_t slot = 0; slot < shard.slots; ++slot) {
            EXPECT_GE(shard.word(slot), range.begin);
            EXPECT_LT(shard.word(slot), range.end);
            elements += placement.elements(shard.word(slot));
          }
          EXPECT_EQ(shard.elements, elements);
        }
      for (int owner = 0; owner < placement.owners(); ++owner)
        EXPECT_EQ(next[owner], placement.slots(owner));
    }
  });
}

TEST(Placement, split_covers_the_words_with_nearly_equal_ranges) {
  for_all_placements([](const Placement& placement) {
    for (const int parts : {1, 2, 3, 16}) {
      const auto ranges = placement.split(parts);
      ASSERT_EQ(ranges.size(), static_cast<size_t>(parts));
      uint64_t end = 0, least = placement.words(), most = 0;
      for (const WordRange range : ranges) {
        EXPECT_EQ(range.begin, end);
        end = range.end;
        least = std::min(least, range.end - range.begin);
        most = std::max(most, range.end - range.begin);
      }
      EXPECT_EQ(end, placement.words());
      EXPECT_LE(most - least, 1u);
    }
  });
}

TEST(HashedElements, shards_of_all_ranges_hold_every_element_once_and_ascend) {
  for (const uint64_t numel : kSizes)
    for (const int owners : {1, 2, 7, 300})
      for (const int parts : {1, 2, 5}) {
        const auto placement = Placement::make(PlacementKind::hashed_elements, numel, owners, 17);
        std::vector<int> seen(numel, 0);
        for (const WordRange range : placement->split(parts))
          for (int owner = 0; owner < owners; ++owner) {
            const Shard shard = placement->shard(owner, range);
            EXPECT_EQ(shard.slots, Placement::words_for(shard.elements));
            uint64_t next = range.begin * kWordElems;
            for (uint64_t slot = 0; slot < shard.slots; ++slot)
              for (uint64_t elem = 0; elem < shard.slot_elements(slot); ++elem) {
                const uint64_t number = shard.element(slot, elem);
                ASSERT_GE(number, next);
                ASSERT_LT(number, std::min(range.end * kWordElems, numel));
                EXPECT_EQ(placement->owner_of_element(number), owner);
                ++seen[number];
                next = number + 1;
              }
          }
        EXPECT_EQ(std::ranges::count(seen, 1), static_cast<std::ptrdiff_t>(numel));
      }
}

TEST(Placement, ranges_have_nearly_equal_lengths) {
  const auto placement = Placement::make(PlacementKind::ranges, 64 * 1000 + 1, 7, 0);
  for (int owner = 0; owner < 7; ++owner) EXPECT_NEAR(placement->slots(owner), 143, 1);
}

TEST(Placement, n_consecutive_words_of_a_block_go_to_n_owners) {
  for (const int owners : {1, 2, 7, 16, 300}) {
    const auto n = static_cast<uint64_t>(owners);
    const auto placement = Placement::make(PlacementKind::hashed, 64 * (5 * n + n / 2), owners, 3);
    for (uint64_t word = 0; word < placement->words(); ++word) {
      const int owner = placement->owner(word);
      EXPECT_EQ(placement->word(owner, word / n), word) << "slot s is a word of block s";
      if (word % n != 0) {
        EXPECT_EQ(owner, (placement->owner(word - 1) + 1) % owners);
      }
    }
    for (int owner = 0; owner < owners; ++owner) {
      EXPECT_GE(placement->slots(owner), 5u);
      EXPECT_LE(placement->slots(owner), 6u);
    }
  }
}

// Who a block begins with is binomial: five standard deviations on each side over fixed seeds.
TEST(Placement, blocks_begin_with_every_owner_equally_often) {
  constexpr int kOwners = 16, kBlocks = 100'000;
  const double mean = double{kBlocks} / kOwners, deviation = std::sqrt(mean * (1 - 1.0 / kOwners));
  for (const uint32_t seed : {0u, 1u, 2u, 1000u, 0xffffffffu}) {
    const auto placement =
        Placement::make(PlacementKind::hashed, uint64_t{kBlocks} * kOwners * 64, kOwners, seed);
    std::vector<int> begun(kOwners, 0);
    for (uint64_t block = 0; block < kBlocks; ++block)
      ++begun[static_cast<size_t>(placement->owner(block * kOwners))];
    for (int owner = 0; owner < kOwners; ++owner)
      EXPECT_NEAR(begun[static_cast<size_t>(owner)], mean, 5 * deviation)
          << "seed " << seed << ", owner " << owner;
  }
}

TEST(Placement, seeds_differ) {
  const auto a = Placement::make(PlacementKind::hashed, 64000, 2, 1);
  const auto b = Placement::make(PlacementKind::hashed, 64000, 2, 2);
  int same = 0;
  for (uint64_t word = 0; word < 1000; ++word) same += a->owner(word) == b->owner(word);
  EXPECT_NEAR(same, 500, 80);
}

TEST(Placement, arithmetic_holds_up_to_two_to_the_38_elements) {
  constexpr uint64_t kNumel = uint64_t{1} << 38, kWords = uint64_t{1} << 32;
  EXPECT_EQ(Placement::words_for(kNumel), kWords);
  EXPECT_EQ(Placement::words_for(kNumel - 63), kWords);
  EXPECT_EQ(Placement::words_for(kNumel - 64), kWords - 1);
  EXPECT_EQ(Placement::words_for(~uint64_t{0}), uint64_t{1} << 58);

  const auto ranges = Placement::make(PlacementKind::ranges, kNumel - 5, 65535, 0);
  EXPECT_EQ(ranges->words(), kWords);
  EXPECT_EQ(ranges->elements(kWords - 1), 59u);
  EXPECT_EQ(ranges->elements(kWords - 2), 64u);
  EXPECT_EQ(ranges->owner(0), 0);
  EXPECT_EQ(ranges->owner(kWords - 1), 65534);
  uint64_t slots = 0;
  for (int owner = 0; owner < 65535; ++owner) {
    const Shard shard = ranges->shard(owner, ranges->all());
    ASSERT_EQ(shard.slots, ranges->slots(owner));
    ASSERT_EQ(ranges->owner(shard.word(0)), owner);
    ASSERT_EQ(ranges->owner(shard.word(shard.slots - 1)), owner);
    slots += shard.slots;
  }
  EXPECT_EQ(slots, kWords);

  const auto hashed = Placement::make(PlacementKind::hashed, kNumel, 65535, 0);
  const int last_owner = hashed->owner(kWords - 1);
  EXPECT_EQ(hashed->word(last_owner, hashed->slots(last_owner) - 1), kWords - 1);
  EXPECT_EQ(hashed->shard(last_owner, {kWords - 1, kWords}).word(0), kWords - 1);

  const auto whole = Placement::make(PlacementKind::whole, kNumel, 1, 0);
  const Shard last = whole->shard(0, {kWords - 3, kWords});
  EXPECT_EQ(last.word(2), kWords - 1);
  EXPECT_EQ(last.elements, 3 * 64u);
  EXPECT_EQ(whole->split(7).back().end, kWords);
}

TEST(Placement, refuses_impossible_shapes) {
  EXPECT_THROW(Placement::make(PlacementKind::hashed, 10, 0, 0), InvalidArgument);
  EXPECT_THROW(Placement::make(PlacementKind::hashed, 10, 65536, 0), InvalidArgument);
  EXPECT_THROW(Placement::make(PlacementKind::whole, 10, 2, 0), InvalidArgument);
  EXPECT_THROW(Placement::make(PlacementKind::ranges, (uint64_t{1} << 38) + 1, 2, 0),
               InvalidArgument);
  EXPECT_THROW(Placement::make(PlacementKind::hashed_elements, uint64_t{1} << 32, 2, 0),
               InvalidArgument);
  EXPECT_THROW(Placement::make(PlacementKind::ranges, 10, 2, 0)->split(0), InvalidArgument);
}

}  // namespace
}  // namespace zen
