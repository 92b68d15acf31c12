// Round trips of every encoding against plainly made selections, and the sizes that are promised.
#include "core/codec.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"
#include "selections.h"

namespace zen {
namespace {

using test::heap_buffer;
using test::select_if;

constexpr Identity kIdentity{0x01020304, 77, 1, 2, 5};
const Choice kChoices[] = {Choice::dense, Choice::words,  Choice::positions, Choice::bitmap,
                           Choice::coo,   Choice::blocks, Choice::cheapest,  Choice::coo_or_dense};
const uint64_t kSizes[] = {0, 1, 2, 63, 64, 65, 127, 129, 4095, 4096, 4097, 20011};
const DType kDTypes[] = {DType::f32, DType::f16, DType::bf16};

struct Pattern {
  const char* name;
  test::Listed listed;
};

std::vector<Pattern> patterns() {
  return {{"nothing", [](uint64_t) { return false; }},
          {"everything", [](uint64_t) { return true; }},
          {"first", [](uint64_t elem) { return elem == 0; }},
          {"all but one", [](uint64_t elem) { return elem != 70; }},
          {"one a word", [](uint64_t elem) { return elem % 64 == 5; }},
          {"first half", [](uint64_t elem) { return elem < 2000; }},
          {"0.1 %", test::uniform(0.001, 1)},
          {"5 %", test::uniform(0.05, 2)},
          {"50 %", test::uniform(0.5, 3)},
          {"99 %", test::uniform(0.99, 4)},
          {"rows of 64", test::rows(0.1, 64, 5)},
          {"rows of 512", test::rows(0.3, 512, 6)},
          {"rows of 100", test::rows(0.3, 100, 7)}};
}

// Calls f(shard, dtype, pattern) over sizes, owners, dtypes and patterns.
template <class F>
void for_all_selections(F&& f) {
  for (const uint64_t numel : kSizes)
    for (const int owners : {1, 3}) {
      const auto placement = Placement::make(PlacementKind::hashed, numel, owners, 9);
      for (int owner = 0; owner < owners; ++owner)
        for (const DType dtype : kDTypes)
          for (const Pattern& pattern : patterns()) {
            SCOPED_TRACE(testing::Message()
                         << "numel " << numel << ", owner " << owner << " of " << owners << ", "
                         << name_of(dtype) << ", " << pattern.name);
            f(placement->shard(owner, placement->all()), dtype, pattern);
          }
    }
}

std::vector<uint64_t> words(const Buffer& buffer) {
  const auto* data = reinterpret_cast<const uint64_t*>(buffer.data);
  return {data, data + buffer.bytes / 8};
}

// Whether the element `elem` of present mask `mask` has the value its bytes say.
void expect_values(const OpenMessage& opened, const Shard& shard, DType dtype,
                   const test::Listed& listed) {
  const auto presence = words(opened.presence), masks = words(opened.masks);
  const std::byte* value = opened.values;
  size_t index = 0;
  for (uint64_t slot = 0; slot < shard.slots; ++slot) {
    if (!bit_at(presence.data(), slot)) continue;
    for (uint64_t rest = masks[index++]; rest != 0; rest &= rest - 1) {
      const uint64_t elem = shard.word(slot) * 64 + static_cast<uint64_t>(std::countr_zero(rest));
      const uint32_t expected = listed(elem) ? test::value_bits(elem) : 0;
      ASSERT_EQ(std::memcmp(value, &expected, size_of(dtype)), 0) << "element " << elem;
      value += size_of(dtype);
    }
  }
  EXPECT_EQ(value, opened.values + opened.header.value_bytes);
}

TEST(Codec, every_choice_gives_back_the_selection) {
  for_all_selections([](const Shard& shard, DType dtype, const Pattern& pattern) {
    const ShardSelection expected = select_if(shard, dtype, pattern.listed);
    for (const Choice choice : kChoices) {
      SCOPED_TRACE(testing::Message() << "choice " << static_cast<int>(choice));
      const Buffer message =
          encode(select_if(shard, dtype, pattern.listed), choice, kIdentity, heap_buffer);
      const OpenMessage opened = open(message, shard, dtype, kIdentity, heap_buffer);
      expect_values(opened, shard, dtype, pattern.listed);
      if (opened.header.count != expected.count) continue;  // zeros were added
      EXPECT_EQ(words(opened.presence), words(expected.presence));
      EXPECT_EQ(words(opened.masks), words(expected.masks));
    }
  });
}

TEST(Codec, dense_lists_every_element) {
  for_all_selections([](const Shard& shard, DType dtype, const Pattern& pattern) {
    const Buffer message =
        encode(select_if(shard, dtype, pattern.listed), Choice::dense, kIdentity, heap_buffer);
    const OpenMessage opened = open(message, shard, dtype, kIdentity, heap_buffer);
    const auto everything = select_if(shard, dtype, [](uint64_t) { return true; });
    EXPECT_EQ(opened.header.count, shard.elements);
    EXPECT_EQ(words(opened.presence), words(everything.presence));
    EXPECT_EQ(words(opened.masks), words(everything.masks));
  });
}

TEST(Codec, sizes_are_exact_and_bounded) {
  for_all_selections([](const Shard& shard, DType dtype, const Pattern& pattern) {
    size_t least = ~size_t{0};
    const size_t dense = kHeaderBytes + shard.elements * size_of(dtype);
    for (const Choice choice : kChoices) {
      ShardSelection selection = select_if(shard, dtype, pattern.listed);
      const size_t predicted = encoded_bytes(selection, choice);
      const Buffer message = encode(std::move(selection), choice, kIdentity, heap_buffer);
      EXPECT_EQ(message.bytes, predicted);
      EXPECT_EQ(message_bytes(message.span()), predicted);
      EXPECT_LE(predicted, max_message_bytes(shard, dtype, choice));
      if (choice != Choice::coo && choice != Choice::blocks) least = std::min(least, predicted);
      if (choice == Choice::cheapest) {
        EXPECT_EQ(predicted, least);
      }
    }
    EXPECT_EQ(max_message_bytes(shard, dtype, Choice::cheapest), dense);
    const ShardSelection selection = select_if(shard, dtype, pattern.listed);
    EXPECT_EQ(encoded_bytes(selection, Choice::coo_or_dense),
              std::min(encoded_bytes(selection, Choice::coo), dense));
  });
}

TEST(Codec, bounds_hold_for_every_count_of_tiny_shards) {
  for (uint64_t numel = 1; numel <= 70; ++numel) {
    const auto placement = Placement::make(PlacementKind::whole, numel, 1, 0);
    const Shard shard = placement->shard(0, placement->all());
    for (uint64_t count = 0; count <= numel; ++count)
      for (const Choice choice : kChoices) {
        const auto selection =
            select_if(shard, DType::bf16, [=](uint64_t elem) { return elem < count; });
        ASSERT_LE(encoded_bytes(selection, choice), max_message_bytes(shard, DType::bf16, choice))
            << count << " of " << numel << ", choice " << static_cast<int>(choice);
      }
  }
}

TEST(Codec, ties_go_to_dense) {
  const auto placement = Placement::make(PlacementKind::whole, 640, 1, 0);
  const Shard shard = placement->shard(0, placement->all());
  const Buffer message = encode(select_if(shard, DType::f32, [](uint64_t) { return true; }),
                                Choice::cheapest, kIdentity, heap_buffer);
  EXPECT_EQ(read_header(message.span()).encoding, Encoding::dense);
}

TEST(Codec, values_stay_where_they_are_when_the_index_fits) {
  const auto placement = Placement::make(PlacementKind::whole, 64000, 1, 0);
  const Shard shard = placement->shard(0, placement->all());
  ShardSelection selection = select_if(shard, DType::f32, test::uniform(0.1, 1));
  const std::byte* before = selection.message.data;
  const Buffer message = encode(std::move(selection), Choice::words, kIdentity,
                                [](size_t) -> Buffer { throw Error("encode must not allocate"); });
  EXPECT_EQ(message.data, before);
}

TEST(Codec, a_message_may_lie_at_any_address) {
  const auto placement = Placement::make(PlacementKind::whole, 6400, 1, 0);
  const Shard shard = placement->shard(0, placement->all());
  const auto listed = test::uniform(0.3, 1);
  const Buffer message =
      encode(select_if(shard, DType::bf16, listed), Choice::words, kIdentity, heap_buffer);
  for (size_t shift = 0; shift < 9; ++shift) {
    const Buffer moved = heap_buffer(message.bytes + shift + 100).slice(shift, message.bytes + 50);
    std::memcpy(moved.data, message.data, message.bytes);
    expect_values(open(moved, shard, DType::bf16, kIdentity, heap_buffer), shard, DType::bf16,
                  listed);
  }
}

TEST(Codec, chunks_of_a_shard_travel_separately) {
  const auto placement = Placement::make(PlacementKind::hashed, 20011, 3, 4);
  const auto listed = test::uniform(0.2, 8);
  for (const WordRange range : placement->split(5))
    for (int owner = 0; owner < 3; ++owner) {
      const Shard shard = placement->shard(owner, range);
      const Buffer message =
          encode(select_if(shard, DType::f32, listed), Choice::cheapest, kIdentity, heap_buffer);
      expect_values(open(message, shard, DType::f32, kIdentity, heap_buffer), shard, DType::f32,
                    listed);
    }
}

}  // namespace
}  // namespace zen
