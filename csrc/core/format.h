// What codec.cpp knows about one encoding. An encoding is one file that fills a Format; adding one
// means that file, its number in message.h, its Choice in codec.h and its line in the table of
// codec.cpp.
//
// A Format deals with the index alone. codec.cpp writes and checks the header, the padding of the
// values, the room, and the normal form that read_index() returns, so a Format need not repeat it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/buffer.h"
#include "core/codec.h"
#include "core/error.h"
#include "core/message.h"
#include "core/selection.h"

namespace zen {

// What a message of a selection will hold besides its header.
struct Plan {
  uint64_t count = 0;          // listed elements; more than the selection's if zeros are added
  uint64_t present_words = 0;  // slots with at least one listed element
  uint64_t index_bytes = 0;    // a multiple of 8
  uint8_t flags = 0;
};

// An index that has arrived. header.count and header.present_words are possible for the shard;
// everything else is still to be doubted.
struct IndexView {
  const Header& header;
  const Shard& shard;
  std::span<const uint64_t> words;     // header.index_bytes of them
  const std::shared_ptr<void>& owner;  // of the memory behind `words`
  const Allocate& allocate;

  // The presence bits or masks are these very words: no copy.
  Buffer alias(std::span<const uint64_t> part) const {
    auto* data = const_cast<uint64_t*>(part.data());  // an OpenMessage is only read
    return {reinterpret_cast<std::byte*>(data), part.size_bytes(), owner};
  }
};

struct NormalForm {
  Buffer presence, masks;  // as in ShardSelection, invariants 1 and 2
};

struct Format {
  Encoding encoding;

  // Exact, from the counts alone where the encoding allows it.
  Plan (*plan)(const ShardSelection& selection);

  // Upper bound, over all selections of the shard, of the index bytes plus the bytes of the values.
  uint64_t (*max_bytes)(const Shard& shard, DType dtype);

  // Writes the plan's count of values, the unlisted ones as zeros. Null if count is always the
  // selection's.
  void (*write_values)(const ShardSelection& selection, std::byte* out);

  // Writes all plan.index_bytes bytes. Null if there never are any.
  void (*write_index)(const ShardSelection& selection, const Plan& plan, uint64_t* out);

  // Throws MalformedMessage if the index cannot be read as presence bits and masks of exactly
  // shard.presence_words() and header.present_words words.
  NormalForm (*read_index)(const IndexView& index);
};

extern const Format kDenseFormat, kWordsFormat, kPositionsFormat, kBitmapFormat, kCooFormat,
    kBlocksFormat;

// The format that encode() takes: for a choice of several, the one with the smallest message. Goes
// by the selection's counts alone, so the memory behind them may be another device's.
const Format& resolve(const ShardSelection& selection, Choice choice);

// The header of the message that `plan` describes, but for its identity.
Header header_of(const ShardSelection& selection, const Format& format, const Plan& plan);

[[noreturn]] inline void reject_field(const char* field, uint64_t found, uint64_t expected) {
  throw MalformedMessage(std::string("malformed message: ") + field + " is " +
                         std::to_string(found) + ", expected " + std::to_string(expected));
}

inline void check_field(const char* field, uint64_t found, uint64_t expected) {
  if (found != expected) reject_field(field, found, expected);
}

inline void check_at_most(const char* field, uint64_t found, uint64_t limit) {
  if (found > limit)
    throw MalformedMessage(std::string("malformed message: ") + field + " is " +
                           std::to_string(found) + ", expected at most " + std::to_string(limit));
}

inline void check_identity(const Header& header, const Identity& expected, int owner) {
  const Identity& found = header.identity;
  check_field("layout", found.layout, expected.layout);
  check_field("sequence", found.sequence, expected.sequence);
  check_field("phase", found.phase, expected.phase);
  check_field("chunk", found.chunk, expected.chunk);
  check_field("source", found.source, expected.source);
  check_field("owner", header.owner, static_cast<uint64_t>(owner));
}

inline uint64_t* words_of(const Buffer& buffer) {
  return reinterpret_cast<uint64_t*>(buffer.data);
}

}  // namespace zen
