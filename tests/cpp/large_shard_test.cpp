// A shard of more than 2^32 elements, in a few megabytes: only presence bits grow with the shard
// when nearly nothing is listed.
#include <gtest/gtest.h>

#include <vector>

#include "core/codec.h"
#include "selections.h"

namespace zen {
namespace {

using test::heap_buffer;

constexpr uint64_t kNumel = (uint64_t{1} << 32) + 70;

// Lists the given words, each with one element.
ShardSelection select_elements(const Shard& shard, const std::vector<uint64_t>& elems) {
  ShardSelection selection;
  selection.shard = shard;
  selection.dtype = DType::f32;
  selection.presence = heap_buffer(shard.presence_words() * 8);
  std::memset(selection.presence.data, 0, selection.presence.bytes);
  selection.masks = heap_buffer(elems.size() * 8);
  selection.message = heap_buffer(kHeaderBytes + elems.size() * 4);
  auto* masks = reinterpret_cast<uint64_t*>(selection.masks.data);
  for (const uint64_t elem : elems) {
    set_bit(reinterpret_cast<uint64_t*>(selection.presence.data), elem / 64);
    *masks++ = uint64_t{1} << elem % 64;
    std::memcpy(selection.message.data + kHeaderBytes + selection.count++ * 4, &elem, 4);
  }
  selection.present_words = elems.size();
  return selection;
}

class LargeShard : public testing::TestWithParam<Choice> {};

TEST_P(LargeShard, gives_back_its_first_and_last_elements) {
  const auto placement = Placement::make(PlacementKind::whole, kNumel, 1, 0);
  const Shard shard = placement->shard(0, placement->all());
  const std::vector<uint64_t> elems = {0, 64, 0x80000000u, 0xffffffffu, kNumel - 70, kNumel - 1};
  const ShardSelection expected = select_elements(shard, elems);
  const Buffer message = encode(select_elements(shard, elems), GetParam(), Identity{}, heap_buffer);
  const OpenMessage opened = open(message, shard, DType::f32, Identity{}, heap_buffer);
  ASSERT_EQ(opened.presence.bytes, expected.presence.bytes);
  ASSERT_EQ(opened.masks.bytes, expected.masks.bytes);
  EXPECT_EQ(std::memcmp(opened.presence.data, expected.presence.data, expected.presence.bytes), 0);
  EXPECT_EQ(std::memcmp(opened.masks.data, expected.masks.data, expected.masks.bytes), 0);
}

INSTANTIATE_TEST_SUITE_P(Sparse, LargeShard,
                         testing::Values(Choice::words, Choice::positions, Choice::coo,
                                         Choice::cheapest));

TEST(LargeShardSizes, coo_positions_have_four_bytes_until_two_to_the_32_elements) {
  const auto at_limit = Placement::make(PlacementKind::whole, uint64_t{1} << 32, 1, 0);
  const auto past_limit = Placement::make(PlacementKind::whole, (uint64_t{1} << 32) + 1, 1, 0);
  const auto coo_bytes = [](const Placement& placement) {
    ShardSelection selection;
    selection.shard = placement.shard(0, placement.all());
    selection.count = selection.present_words = 100;
    return encoded_bytes(selection, Choice::coo);
  };
  EXPECT_EQ(coo_bytes(*at_limit), kHeaderBytes + 100 * 4 + 100 * 4);
  EXPECT_EQ(coo_bytes(*past_limit), kHeaderBytes + 100 * 4 + 100 * 8);
}

}  // namespace
}  // namespace zen
