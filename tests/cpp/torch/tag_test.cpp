#include "torch/tag.h"

#include <gtest/gtest.h>

#include <set>

namespace zen {
namespace {

TEST(Tag, buckets_phases_and_chunks_in_flight_never_share_a_tag) {
  std::set<int> tags;
  size_t count = 0;
  for (const uint32_t layout : {0u, 1u, 2047u, 0x12345400u})
    for (const uint32_t sequence : {0u, 1u, 4094u, 4095u})
      for (uint8_t phase = 0; phase < 15; ++phase)
        for (uint8_t chunk = 0; chunk < 16; ++chunk, ++count) {
          const int tag = pack({layout, sequence, phase, chunk});
          EXPECT_GE(tag, 0);
          tags.insert(tag);
        }
  EXPECT_EQ(tags.size(), count);
  EXPECT_EQ(tags.count(kUnansweredTag), 0u);
}

TEST(Tag, sequence_wraps_far_beyond_what_is_in_flight) {
  EXPECT_EQ(pack({7, 4096, 1, 2}), pack({7, 0, 1, 2}));
  EXPECT_EQ(pack({7, 0xffffffff, 1, 2}), pack({7, 4095, 1, 2}));
}

TEST(Tag, refuses_phases_and_chunks_without_room) {
  EXPECT_THROW(pack({0, 0, 15, 0}), InvalidArgument);
  EXPECT_THROW(pack({0, 0, 0, 16}), InvalidArgument);
}

}  // namespace
}  // namespace zen
