// The envelope of every message: a fixed little-endian header, the values, padding to 8 bytes, the
// index. docs/wire-format.md is the specification; the constants shared by encoders and decoders
// are here.
//
//   offset  size  field
//        0     2  magic          'Z' 'S'
//        2     1  version        kVersion
//        3     1  encoding       Encoding
//        4     1  dtype          DType of the values
//        5     1  flags          bits 0 to 6: meaning depends on the encoding; bit 7: packed values
//        6     1  phase          step of the scheme (0 = push, 1 = pull, ...)
//        7     1  chunk          word range of the bucket
//        8     4  sequence       number of the bucket on this group
//       12     4  layout         low half of the layout fingerprint
//       16     2  owner          owner of the shard
//       18     2  source         rank that made the message
//       20     4  present_words  slots that list at least one element
//       24     8  count          listed elements
//       32     8  value_bytes    bytes of the values, without padding
//       40     8  index_bytes    bytes of the index
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/buffer.h"
#include "core/dtype.h"

namespace zen {

constexpr size_t kHeaderBytes = 48;
constexpr uint8_t kVersion = 1;

enum class Encoding : uint8_t {
  dense = 0,
  words = 1,
  positions = 2,
  bitmap = 3,
  coo = 4,
  blocks = 5,
  fragment = 6  // not an index format: a piece of another message, see fragment.h
};
constexpr uint8_t kEncodings = 7;

const char* name_of(Encoding encoding);

// Which message of which exchange this is. A receiver accepts only the identity it waits for,
// because a reused receive buffer may still hold an old, well-formed message.
struct Identity {
  uint32_t layout = 0;
  uint32_t sequence = 0;
  uint8_t phase = 0;
  uint8_t chunk = 0;
  uint16_t source = 0;
};

struct Header {
  Encoding encoding = Encoding::dense;
  DType dtype = DType::f32;
  uint8_t flags = 0;    // of the encoding, below 128
  bool packed = false;  // the values are packed (value_packing.h)
  Identity identity;
  uint16_t owner = 0;
  uint32_t present_words = 0;
  uint64_t count = 0;
  uint64_t value_bytes = 0;
  uint64_t index_bytes = 0;

  size_t index_offset() const { return (kHeaderBytes + value_bytes + 7) / 8 * 8; }
  size_t message_bytes() const {
    return index_bytes ? index_offset() + index_bytes : kHeaderBytes + value_bytes;
  }
};

// REQUIRES: out has kHeaderBytes bytes.
void write_header(const Header& header, std::byte* out);

// Reads the fields. Throws MalformedMessage if the bytes are too short, the magic, version,
// encoding or dtype is unknown, or the sizes the header claims overflow or exceed message.size().
Header read_header(std::span<const std::byte> message);

// The same for a message of which only the beginning is at hand: the first kHeaderBytes of its
// `message_bytes` bytes, or all of them if they are fewer.
Header read_header(std::span<const std::byte> beginning, uint64_t message_bytes);

// Length of the message that starts at message.data (it may be shorter than the buffer it was
// received into). Throws as read_header does.
size_t message_bytes(std::span<const std::byte> message);

}  // namespace zen
