#include "core/fragment.h"

#include <cstdint>
#include <cstring>

#include "core/error.h"
#include "core/format.h"

namespace zen {

namespace {

uint64_t piece_bytes(uint64_t bytes, uint64_t piece, uint64_t pieces) {
  return piece_begin(bytes, piece + 1, pieces) - piece_begin(bytes, piece, pieces);
}

void check_piece(const Header& header, const Identity& expected, int owner) {
  check_field("encoding", static_cast<uint64_t>(header.encoding),
              static_cast<uint64_t>(Encoding::fragment));
  check_identity(header, expected, owner);
  check_field("flags", header.flags, 0);
  check_field("packed", header.packed, 0);
  check_field("index_bytes", header.index_bytes, 0);
}

}  // namespace

std::vector<Header> piece_headers(const Header& whole, int pieces) {
  const uint64_t bytes = whole.message_bytes();
  const auto n = static_cast<uint64_t>(pieces);
  std::vector<Header> headers(n);
  for (uint64_t piece = 0; piece < n; ++piece) {
    Header& header = headers[piece];
    header.encoding = Encoding::fragment;
    header.dtype = whole.dtype;
    header.identity = whole.identity;
    header.owner = whole.owner;
    header.present_words = static_cast<uint32_t>(piece);
    header.count = bytes;
    header.value_bytes = piece_bytes(bytes, piece, n);
  }
  return headers;
}

uint64_t check_pieces(std::span<const Header> pieces, const Identity& expected, int owner,
                      size_t max_bytes) {
  if (pieces.empty()) throw InvalidArgument("there is no piece to join");
  check_piece(pieces.front(), expected, owner);
  const uint64_t bytes = pieces.front().count;
  check_at_most("count", bytes, max_bytes);
  for (uint64_t piece = 0; piece < pieces.size(); ++piece) {
    const Header& header = pieces[piece];
    check_piece(header, expected, owner);
    check_field("present_words", header.present_words, piece);
    check_field("count", header.count, bytes);
    check_field("value_bytes", header.value_bytes, piece_bytes(bytes, piece, pieces.size()));
  }
  return bytes;
}

std::vector<Buffer> cut(const Buffer& message, int pieces, const Allocate& allocate) {
  const Header whole = read_header(message.span());
  const std::byte* next = message.data;
  std::vector<Buffer> result;
  for (const Header& header : piece_headers(whole, pieces)) {
    result.push_back(allocate(header.message_bytes()));
    write_header(header, result.back().data);
    std::memcpy(result.back().data + kHeaderBytes, next, header.value_bytes);
    next += header.value_bytes;
  }
  return result;
}

Buffer join(std::span<const Buffer> pieces, const Identity& expected, int owner, size_t max_bytes,
            const Allocate& allocate) {
  std::vector<Header> headers;
  for (const Buffer& piece : pieces) headers.push_back(read_header(piece.span()));
  Buffer whole = allocate(check_pieces(headers, expected, owner, max_bytes));
  std::byte* next = whole.data;
  for (size_t piece = 0; piece < pieces.size(); ++piece) {
    std::memcpy(next, pieces[piece].data + kHeaderBytes, headers[piece].value_bytes);
    next += headers[piece].value_bytes;
  }
  return whole;
}

}  // namespace zen
