#include "core/fragment.h"

#include <cstdint>
#include <cstring>

#include "core/error.h"
#include "core/format.h"

namespace zen {

namespace {

// Where piece `piece` of `pieces` begins.
uint64_t piece_begin(uint64_t bytes, uint64_t piece, uint64_t pieces) {
  return bytes / pieces * piece + bytes % pieces * piece / pieces;
}

uint64_t piece_bytes(uint64_t bytes, uint64_t piece, uint64_t pieces) {
  return piece_begin(bytes, piece + 1, pieces) - piece_begin(bytes, piece, pieces);
}

Header checked_header(const Buffer& piece, const Identity& expected, int owner) {
  const Header header = read_header(piece.span());
  check_field("encoding", static_cast<uint64_t>(header.encoding),
              static_cast<uint64_t>(Encoding::fragment));
  check_identity(header, expected, owner);
  check_field("flags", header.flags, 0);
  check_field("packed", header.packed, 0);
  check_field("index_bytes", header.index_bytes, 0);
  return header;
}

}  // namespace

std::vector<Buffer> cut(const Buffer& message, int pieces, const Allocate& allocate) {
  const Header whole = read_header(message.span());
  const uint64_t bytes = whole.message_bytes();
  const auto n = static_cast<uint64_t>(pieces);
  std::vector<Buffer> result;
  for (uint64_t piece = 0; piece < n; ++piece) {
    Header header;
    header.encoding = Encoding::fragment;
    header.dtype = whole.dtype;
    header.identity = whole.identity;
    header.owner = whole.owner;
    header.present_words = static_cast<uint32_t>(piece);
    header.count = bytes;
    header.value_bytes = piece_bytes(bytes, piece, n);
    result.push_back(allocate(header.message_bytes()));
    write_header(header, result.back().data);
    std::memcpy(result.back().data + kHeaderBytes, message.data + piece_begin(bytes, piece, n),
                header.value_bytes);
  }
  return result;
}

Buffer join(std::span<const Buffer> pieces, const Identity& expected, int owner, size_t max_bytes,
            const Allocate& allocate) {
  if (pieces.empty()) throw InvalidArgument("there is no piece to join");
  const uint64_t bytes = checked_header(pieces.front(), expected, owner).count;
  check_at_most("count", bytes, max_bytes);
  Buffer whole = allocate(bytes);
  for (uint64_t piece = 0; piece < pieces.size(); ++piece) {
    const Header header = checked_header(pieces[piece], expected, owner);
    check_field("present_words", header.present_words, piece);
    check_field("count", header.count, bytes);
    check_field("value_bytes", header.value_bytes, piece_bytes(bytes, piece, pieces.size()));
    std::memcpy(whole.data + piece_begin(bytes, piece, pieces.size()),
                pieces[piece].data + kHeaderBytes, header.value_bytes);
  }
  return whole;
}

}  // namespace zen
