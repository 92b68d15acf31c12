// A message cut into pieces of equal size, so that several ranks can pass it on together.
//
// A piece is itself a message: encoding `fragment`, the identity and owner of the whole, its number
// in present_words, the bytes of the whole in count, and its share of those bytes where values
// would be. cut() and join() read and write the messages' memory on the calling thread; for a
// device with memory of its own the other functions say what to copy where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/message.h"

namespace zen {

// Upper bound of a piece's bytes. REQUIRES: pieces > 0.
constexpr size_t max_fragment_bytes(size_t max_message_bytes, int pieces) {
  const auto n = static_cast<size_t>(pieces);
  return kHeaderBytes + (max_message_bytes + n - 1) / n;
}

// Where piece `piece` of `pieces` begins in a message of `bytes` bytes; the last one ends at
// `bytes`.
constexpr uint64_t piece_begin(uint64_t bytes, uint64_t piece, uint64_t pieces) {
  return bytes / pieces * piece + bytes % pieces * piece / pieces;
}

// The headers of the pieces of a message that begins with `whole`. REQUIRES: pieces > 0.
std::vector<Header> piece_headers(const Header& whole, int pieces);

// The bytes of the whole, given the headers of its pieces in order. Throws as join() does.
uint64_t check_pieces(std::span<const Header> pieces, const Identity& expected, int owner,
                      size_t max_bytes);

// REQUIRES: a message with a sound header, pieces > 0.
std::vector<Buffer> cut(const Buffer& message, int pieces, const Allocate& allocate);

// The whole again, which open() still has to check. Throws MalformedMessage if the pieces, in
// order, are not those of one message of at most max_bytes bytes with this identity and owner.
Buffer join(std::span<const Buffer> pieces, const Identity& expected, int owner, size_t max_bytes,
            const Allocate& allocate);

}  // namespace zen
