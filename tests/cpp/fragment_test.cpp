#include "core/fragment.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/error.h"
#include "oracle.h"

namespace zen::test {
namespace {

const Identity kIdentity{.layout = 7, .sequence = 3, .phase = 1, .chunk = 2, .source = 4};
constexpr int kOwner = 4;

// A message of `value_bytes` + 48 bytes.
Buffer message_of(size_t value_bytes) {
  Header header;
  header.identity = kIdentity;
  header.owner = kOwner;
  header.value_bytes = value_bytes;
  Buffer message = heap_buffer(header.message_bytes());
  write_header(header, message.data);
  for (size_t i = 0; i < value_bytes; ++i)
    message.data[kHeaderBytes + i] = static_cast<std::byte>(i * 37);
  return message;
}

Buffer join_all(std::span<const Buffer> pieces, size_t max_bytes = 10'000) {
  return join(pieces, kIdentity, kOwner, max_bytes, heap_buffer);
}

TEST(Fragment, pieces_make_the_message_again_and_fit_their_bound) {
  for (const size_t value_bytes : {0u, 1u, 63u, 64u, 1000u, 4097u})
    for (const int pieces : {1, 2, 3, 16, 70, 65535}) {
      const Buffer message = message_of(value_bytes);
      const std::vector<Buffer> cut_up = cut(message, pieces, heap_buffer);
      ASSERT_EQ(cut_up.size(), static_cast<size_t>(pieces));
      for (const Buffer& piece : cut_up) {
        EXPECT_EQ(message_bytes(piece.span()), piece.bytes);
        EXPECT_LE(piece.bytes, max_fragment_bytes(message.bytes, pieces));
      }
      const Buffer whole = join_all(cut_up, message.bytes);
      ASSERT_EQ(whole.bytes, message.bytes);
      EXPECT_EQ(std::memcmp(whole.data, message.data, message.bytes), 0);
    }
}

TEST(Fragment, only_the_pieces_of_one_expected_message_are_joined) {
  const std::vector<Buffer> good = cut(message_of(500), 3, heap_buffer);
  EXPECT_NO_THROW(join_all(good));
  const auto expect_refused = [](std::vector<Buffer> pieces) {
    EXPECT_THROW(join_all(pieces), MalformedMessage);
  };
  expect_refused({good[1], good[0], good[2]});
  expect_refused({good[0], good[1]});
  expect_refused({good[0], good[1], cut(message_of(501), 3, heap_buffer)[2]});
  expect_refused({message_of(500)});
  expect_refused({good[0], good[1], good[2].slice(0, good[2].bytes - 1)});
  EXPECT_THROW(join_all(good, 547), MalformedMessage) << "more than the shard can need";
  EXPECT_THROW(join(good, kIdentity, kOwner + 1, 10'000, heap_buffer), MalformedMessage);
  // Every byte of the header counts; of the values none is looked at.
  for (size_t at = 0; at < kHeaderBytes; ++at) {
    if (at == 4) continue;  // the dtype is the whole's: open() checks it there
    std::vector<Buffer> pieces = cut(message_of(500), 3, heap_buffer);
    pieces[1].data[at] ^= std::byte{0x41};
    EXPECT_THROW(join_all(pieces), MalformedMessage) << "byte " << at;
  }
}

TEST(Fragment, is_not_a_message_that_can_be_opened) {
  const auto placement = Placement::make(PlacementKind::whole, 100, 1, 0);
  Header header;
  header.encoding = Encoding::fragment;
  Buffer message = heap_buffer(kHeaderBytes);
  write_header(header, message.data);
  EXPECT_THROW(
      open(message, placement->shard(0, placement->all()), DType::f32, Identity{}, heap_buffer),
      MalformedMessage);
}

}  // namespace
}  // namespace zen::test
