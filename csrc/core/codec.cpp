#include "core/codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <string>

#include "core/bits.h"
#include "core/error.h"
#include "core/format.h"
#include "core/narrow.h"
#include "core/value_packing.h"

namespace zen {

namespace {

constexpr std::array kFormats{&kDenseFormat,  &kWordsFormat, &kPositionsFormat,
                              &kBitmapFormat, &kCooFormat,   &kBlocksFormat};

// What a choice of several compares. Ties go to the earlier one. Dense is always among them, so
// that their messages never exceed it.
std::span<const Choice> candidates(Choice choice) {
  static constexpr std::array kCheapest{Choice::dense, Choice::words, Choice::positions,
                                        Choice::bitmap};
  static constexpr std::array kCooOrDense{Choice::dense, Choice::coo};
  if (choice == Choice::cheapest) return kCheapest;
  if (choice == Choice::coo_or_dense) return kCooOrDense;
  return {};
}

const Format& format_of(Encoding encoding) {
  if (encoding == Encoding::fragment)
    throw MalformedMessage("malformed message: a fragment is not a whole message");
  return *kFormats[static_cast<size_t>(encoding)];
}

// REQUIRES: choice names one encoding: up to there the two enumerations agree.
const Format& format_of(Choice choice) {
  return *kFormats[static_cast<size_t>(choice)];
}

}  // namespace

Header header_of(const ShardSelection& selection, const Format& format, const Plan& plan) {
  Header header;
  header.encoding = format.encoding;
  header.dtype = selection.dtype;
  header.flags = plan.flags;
  header.owner = static_cast<uint16_t>(selection.shard.owner);
  header.present_words = static_cast<uint32_t>(plan.present_words);
  header.count = plan.count;
  header.value_bytes = plan.count * size_of(selection.dtype);
  header.index_bytes = plan.index_bytes;
  return header;
}

namespace {

size_t bytes_of(const ShardSelection& selection, const Format& format) {
  return header_of(selection, format, format.plan(selection)).message_bytes();
}

}  // namespace

const Format& resolve(const ShardSelection& selection, Choice choice) {
  const std::span<const Choice> several = candidates(choice);
  if (several.empty()) return format_of(choice);
  return format_of(*std::min_element(several.begin(), several.end(), [&](auto a, auto b) {
    return bytes_of(selection, format_of(a)) < bytes_of(selection, format_of(b));
  }));
}

namespace {

// The buffer that becomes the message, values in place.
Buffer with_values(const ShardSelection& selection, const Format& format, const Header& header,
                   const Allocate& allocate) {
  const bool adds_zeros = header.count != selection.count;
  if (!adds_zeros && selection.message.bytes >= header.message_bytes()) return selection.message;
  Buffer message = allocate(header.message_bytes());
  std::byte* values = message.data + kHeaderBytes;
  if (adds_zeros)
    format.write_values(selection, values);
  else if (header.value_bytes != 0)
    std::memcpy(values, selection.message.data + kHeaderBytes, header.value_bytes);
  return message;
}

// The buffer that becomes the message with its values packed if that makes them fewer bytes.
// Otherwise `message` as it is.
Buffer with_packed_values(const Buffer& message, Header& header, const Allocate& allocate) {
  const size_t most = max_packed_bytes(header.dtype, header.count);
  Buffer packed = allocate(kHeaderBytes + round_up_8(most) + header.index_bytes);
  const size_t bytes = pack_values(header.dtype, message.data + kHeaderBytes, header.count,
                                   packed.data + kHeaderBytes);
  if (bytes >= header.value_bytes) return message;
  header.value_bytes = bytes;
  header.packed = true;
  return packed;
}

// A message whose values are in place, and whose header and index are still to be written.
struct Draft {
  const Format* format = nullptr;
  Plan plan;
  Header header;
  Buffer message;
};

Draft draft_of(const ShardSelection& selection, const Format& format, bool pack,
               const Allocate& allocate) {
  Draft draft{&format, format.plan(selection), {}, {}};
  draft.header = header_of(selection, format, draft.plan);
  draft.message = with_values(selection, format, draft.header, allocate);
  if (pack) draft.message = with_packed_values(draft.message, draft.header, allocate);
  return draft;
}

// The encodings that list exactly what the selection does share their values, packed or not, so the
// one with the smallest index is the smallest of them. The dense one has other values: how well
// those pack is known only when they have been packed, which is worth the time only if they could
// win.
Draft cheapest_packed(const ShardSelection& selection, const Allocate& allocate) {
  const uint64_t elements = selection.shard.elements;
  if (selection.count == elements) return draft_of(selection, kDenseFormat, true, allocate);
  const Format* smallest = &kWordsFormat;
  for (const Format* format : {&kPositionsFormat, &kBitmapFormat})
    if (bytes_of(selection, *format) < bytes_of(selection, *smallest)) smallest = format;
  Draft sparse = draft_of(selection, *smallest, true, allocate);
  if (sparse.header.message_bytes() < kHeaderBytes + min_packed_bytes(selection.dtype, elements))
    return sparse;
  Draft dense = draft_of(selection, kDenseFormat, true, allocate);
  return dense.header.message_bytes() <= sparse.header.message_bytes() ? dense : sparse;
}

void check_counts(const Header& header, const Shard& shard) {
  check_at_most("present_words", header.present_words, shard.slots);
  check_at_most("count", header.count, shard.elements);
  const uint64_t raw_bytes = header.count * size_of(header.dtype);
  if (!header.packed) {
    check_field("value_bytes", header.value_bytes, raw_bytes);
  } else if (header.value_bytes >= raw_bytes) {
    throw MalformedMessage("malformed message: packed values take " +
                           std::to_string(header.value_bytes) + " bytes, but " +
                           std::to_string(raw_bytes) + " as they are");
  }
  check_field("index_bytes modulo 8", header.index_bytes % 8, 0);
}

void check_value_padding(const Header& header, const std::byte* message) {
  if (header.index_bytes == 0) return;
  const std::byte* end = message + header.index_offset();
  for (const std::byte* at = message + kHeaderBytes + header.value_bytes; at != end; ++at)
    check_field("padding behind the values", std::to_integer<uint64_t>(*at), 0);
}

// The index as 64-bit words: in place if it is aligned, otherwise copied into `copy`.
std::span<const uint64_t> index_words(const Header& header, const Buffer& message, Buffer& copy,
                                      const Allocate& allocate) {
  if (header.index_bytes == 0) return {};
  const std::byte* index = message.data + header.index_offset();
  if (reinterpret_cast<uintptr_t>(index) % alignof(uint64_t) != 0) {
    copy = allocate(header.index_bytes);
    std::memcpy(copy.data, index, header.index_bytes);
    index = copy.data;
  }
  return {reinterpret_cast<const uint64_t*>(index), header.index_bytes / 8};
}

// Invariants 1 to 3 of ShardSelection, whatever the encoding: no decoder behind this needs to doubt
// an index again.
void check_normal_form(const Header& header, const Shard& shard, const NormalForm& normal) {
  const std::span<const uint64_t> presence(words_of(normal.presence), shard.presence_words());
  const std::span<const uint64_t> masks(words_of(normal.masks), header.present_words);
  if (!padding_is_zero(presence, shard.slots))
    throw MalformedMessage("malformed message: presence bits past the last slot are not zero");
  check_field("number of presence bits", count_ones(presence), header.present_words);
  if (std::find(masks.begin(), masks.end(), uint64_t{0}) != masks.end())
    throw MalformedMessage("malformed message: the mask of a present word is zero");
  check_field("number of mask bits", count_ones(masks), header.count);
  if (shard.slots != 0 && bit_at(presence.data(), shard.slots - 1) &&
      (masks.back() & ~low_bits(shard.last_slot_elements())) != 0)
    throw MalformedMessage("malformed message: a mask bit lies past the end of the gradient");
}

// Vector kernels may read a little past the last value.
Buffer unpack(const Header& header, const Buffer& message, const Allocate& allocate) {
  constexpr size_t kVectorRoom = 128;
  Buffer values = allocate(header.count * size_of(header.dtype) + kVectorRoom);
  unpack_values(header.dtype, message.span().subspan(kHeaderBytes, header.value_bytes),
                header.count, values.data);
  return values;
}

}  // namespace

size_t encoded_bytes(const ShardSelection& selection, Choice choice) {
  return bytes_of(selection, resolve(selection, choice));
}

size_t max_message_bytes(const Shard& shard, DType dtype, Choice choice) {
  const Format& format = format_of(candidates(choice).empty() ? choice : Choice::dense);
  return kHeaderBytes + format.max_bytes(shard, dtype);
}

Buffer encode(ShardSelection&& selection, const EncodeOptions& options, const Identity& identity,
              const Allocate& allocate) {
  if (options.narrow_to) narrow_values(selection, *options.narrow_to);
  auto [format, plan, header, message] =
      options.pack_values && options.choice == Choice::cheapest
          ? cheapest_packed(selection, allocate)
          : draft_of(selection, resolve(selection, options.choice), options.pack_values, allocate);
  if (plan.present_words > std::numeric_limits<uint32_t>::max())
    throw InvalidArgument("a message describes at most 2^32 - 1 words, not " +
                          std::to_string(plan.present_words) + ": use more owners or chunks");
  header.identity = identity;
  write_header(header, message.data);
  if (header.index_bytes != 0) {
    const size_t values_end = kHeaderBytes + header.value_bytes;
    std::memset(message.data + values_end, 0, header.index_offset() - values_end);
    format->write_index(selection, plan,
                        reinterpret_cast<uint64_t*>(message.data + header.index_offset()));
  }
  return message.slice(0, header.message_bytes());
}

OpenMessage open(const Buffer& message, const Shard& shard, DType dtype, const Identity& expected,
                 const Allocate& allocate) {
  const Header header = read_header(message.span());
  check_identity(header, expected, shard.owner);
  check_field("dtype", static_cast<uint64_t>(header.dtype), static_cast<uint64_t>(dtype));
  check_counts(header, shard);
  check_value_padding(header, message.data);
  Buffer copy;
  const auto words = index_words(header, message, copy, allocate);
  const auto& owner = copy.data != nullptr ? copy.owner : message.owner;
  const NormalForm normal =
      format_of(header.encoding).read_index({header, shard, words, owner, allocate});
  check_normal_form(header, shard, normal);
  OpenMessage opened{header, message, normal.presence, normal.masks, message.data + kHeaderBytes,
                     {}};
  if (header.packed) {
    opened.converted = unpack(header, message, allocate);
    opened.values = opened.converted.data;
  }
  return opened;
}

}  // namespace zen
