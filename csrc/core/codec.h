// Turning the listed elements of a shard into a message and back.
//
// encode() appends an index to the values that a selection already holds; open() checks a message
// from another rank completely and normalises its index, whatever the encoding, to presence bits
// and masks. merge() and decode_write() work on that normal form, so an encoding is only an index
// format.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/buffer.h"
#include "core/dtype.h"
#include "core/message.h"
#include "core/placement.h"
#include "core/selection.h"

namespace zen {

// How a message is to be encoded: one of the encodings of message.h or the smallest of several.
// Exact sizes are compared, computed from counts alone.
enum class Choice : uint8_t {
  dense,
  words,
  positions,
  bitmap,
  coo,
  blocks,
  cheapest,     // dense, words, positions or bitmap
  coo_or_dense  // what SparCML switches between
};

// How encode() is to make a message.
struct EncodeOptions {
  Choice choice = Choice::cheapest;
  // Pack the values (value_packing.h) if that makes the message smaller. `cheapest` then compares
  // packed messages; `coo_or_dense` goes by the size of the values as they are.
  bool pack_values = false;
  // Round float32 values to this type first; none leaves them as they are.
  std::optional<DType> narrow_to = {};

  EncodeOptions(Choice choice, bool pack_values = false, std::optional<DType> narrow_to = {})
      : choice(choice), pack_values(pack_values), narrow_to(narrow_to) {}
};

// Exact size of the message that encode() would make without packing: how well values pack is known
// when they have been packed. REQUIRES: the selection's invariants.
size_t encoded_bytes(const ShardSelection& selection, Choice choice);

// Upper bound of encoded_bytes over all selections of this shard: the capacity a receiver posts,
// whether values are packed or not.
size_t max_message_bytes(const Shard& shard, DType dtype, Choice choice);

// Finishes selection.message in place (one copy, from `allocate`, if zeros must be added or the
// index does not fit behind the values; more to pack values) and returns it cut to its exact size.
// The selection is consumed.
Buffer encode(ShardSelection&& selection, const EncodeOptions& options, const Identity& identity,
              const Allocate& allocate);

// A checked message in normal form. Keeps the message alive; presence, masks and converted values
// are scratch memory.
struct OpenMessage {
  Header header;
  Buffer message;
  Buffer presence, masks;  // as in ShardSelection, invariants 1 and 2
  const std::byte* values = nullptr;
  Buffer converted;  // what `values` points to if the message's own were packed or too narrow

  // End of the memory that may be read from `values` on.
  const std::byte* readable_end() const {
    const Buffer& holder = converted.data != nullptr ? converted : message;
    return holder.data + holder.bytes;
  }

  const uint64_t* presence_bits() const { return reinterpret_cast<const uint64_t*>(presence.data); }
  const uint64_t* mask_list() const { return reinterpret_cast<const uint64_t*>(masks.data); }
};

// Checks version, encoding, identity, owner, dtype, counts, lengths and popcounts against the
// shard, and that no listed element lies past the gradient's end; unpacks packed values. Reads only
// message.data[0, message.bytes). Throws MalformedMessage naming the field, the value found and the
// value expected. Nothing of the caller's is written before the check has passed.
OpenMessage open(const Buffer& message, const Shard& shard, DType dtype, const Identity& expected,
                 const Allocate& allocate);

}  // namespace zen
