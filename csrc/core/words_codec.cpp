// Encoding `words`: which slots list anything, and 64 mask bits for each that lists only a part.
//
//   index    := presence full masks
//   presence := bitmap (1 bit a slot) | Elias-Fano list of the present slots | nothing (all
//   present) full     := nothing (none or all) | 1 bit a present word masks    := 8 bytes for each
//   present word that is not marked full, in slot order flags    := presence kind | full kind << 2
//
// A word is full if every element that it has is listed. Each part is padded to 8 bytes with zeros.

#include <algorithm>

#include "core/bits.h"
#include "core/elias_fano.h"
#include "core/format.h"
#include "core/full_masks.h"

namespace zen {

namespace {

enum Presence : uint8_t { kBitmap = 0, kEliasFano = 1, kAllPresent = 2 };
enum Full : uint8_t { kNoFlags = 0, kAllFull = 1, kFlags = 2 };

constexpr uint8_t flags_of(Presence presence, Full full) {
  return static_cast<uint8_t>(presence | full << 2);
}

uint64_t presence_words(Presence kind, uint64_t present, uint64_t slots) {
  if (kind == kAllPresent) return 0;
  return kind == kBitmap ? words_for_bits(slots) : EliasFano(present, slots).words();
}

Presence smaller_presence(uint64_t present, uint64_t slots) {
  if (present == slots) return kAllPresent;
  return EliasFano(present, slots).words() < words_for_bits(slots) ? kEliasFano : kBitmap;
}

// Flags are worth their bits only if they save more masks than that.
Full smaller_full(uint64_t present, uint64_t full) {
  if (full == present) return kAllFull;
  return words_for_bits(present) < full ? kFlags : kNoFlags;
}

Plan plan(const ShardSelection& selection) {
  const uint64_t present = selection.present_words, full = selection.full_words;
  const Presence presence_kind = smaller_presence(present, selection.shard.slots);
  const Full full_kind = smaller_full(present, full);
  uint64_t words = presence_words(presence_kind, present, selection.shard.slots);
  if (full_kind == kFlags) words += words_for_bits(present) + present - full;
  if (full_kind == kNoFlags) words += present;
  return {selection.count, present, words * 8, flags_of(presence_kind, full_kind)};
}

uint64_t max_bytes(const Shard& shard, DType dtype) {
  const uint64_t index_words = words_for_bits(shard.slots) + shard.slots;
  return round_up_8(shard.elements * size_of(dtype)) + index_words * 8;
}

uint64_t* write_presence(const ShardSelection& selection, Presence kind, uint64_t* out) {
  const std::span bits(selection.presence_bits(), selection.shard.presence_words());
  if (kind == kBitmap) return std::copy(bits.begin(), bits.end(), out);
  if (kind == kAllPresent) return out;
  const EliasFano layout(selection.present_words, selection.shard.slots);
  EliasFanoWriter writer(layout, out);
  for_each_bit(bits, [&](uint64_t slot) { writer.push(slot); });
  writer.finish();
  return out + layout.words();
}

void write_masks_behind_flags(const ShardSelection& selection, uint64_t* out) {
  const uint64_t present = selection.present_words;
  const FullMask full(selection.shard, selection.presence_bits(), present);
  const uint64_t* masks = selection.mask_list();
  uint64_t* flags = out;
  out = std::fill_n(out, words_for_bits(present), uint64_t{0});
  for (uint64_t index = 0; index < present; ++index) {
    if (masks[index] == full.of(index))
      set_bit(flags, index);
    else
      *out++ = masks[index];
  }
}

void write_index(const ShardSelection& selection, const Plan& plan, uint64_t* out) {
  out = write_presence(selection, static_cast<Presence>(plan.flags & 3), out);
  const auto full_kind = static_cast<Full>(plan.flags >> 2);
  if (full_kind == kNoFlags) std::copy_n(selection.mask_list(), selection.present_words, out);
  if (full_kind == kFlags) write_masks_behind_flags(selection, out);
}

Buffer read_presence(const IndexView& index, Presence kind, std::span<const uint64_t> part) {
  const uint64_t slots = index.shard.slots, present = index.header.present_words;
  if (kind == kBitmap) return index.alias(part);
  Buffer presence = index.allocate(index.shard.presence_words() * 8);
  if (kind == kAllPresent) {
    check_field("present_words", present, slots);
    fill_bits(words_of(presence), slots);
    return presence;
  }
  const EliasFano layout(present, slots);
  check_shape(layout, part);
  std::fill_n(words_of(presence), index.shard.presence_words(), uint64_t{0});
  for_each_number(layout, part, [&](uint64_t slot) { set_bit(words_of(presence), slot); });
  return presence;
}

// `part` holds the flags and the masks that follow them.
Buffer read_masks_behind_flags(const IndexView& index, const uint64_t* presence,
                               std::span<const uint64_t> part) {
  const uint64_t present = index.header.present_words;
  const auto flags = part.first(words_for_bits(present)), listed = part.subspan(flags.size());
  if (!padding_is_zero(flags, present))
    throw MalformedMessage("malformed message: padding of the full flags is not zero");
  check_field("number of masks", listed.size(), present - count_ones(flags));
  const FullMask full(index.shard, presence, present);
  Buffer masks = index.allocate(present * 8);
  const uint64_t* next = listed.data();
  for (uint64_t word = 0; word < present; ++word) {
    const bool flagged = bit_at(flags.data(), word);
    const uint64_t mask = flagged ? full.of(word) : *next++;
    if (!flagged && mask == full.of(word)) reject_field("full flag of a full word", 0, 1);
    words_of(masks)[word] = mask;
  }
  return masks;
}

// The fixed part of the index must fit before it is read, the exact size is checked with the masks.
void check_kinds(const IndexView& index, Presence presence, Full full) {
  const uint64_t present = index.header.present_words, have = index.words.size();
  if (presence > kAllPresent || full > kFlags) reject_field("flags", index.header.flags, 0);
  const uint64_t fixed = presence_words(presence, present, index.shard.slots);
  const uint64_t behind = full == kNoFlags ? present : full == kFlags ? words_for_bits(present) : 0;
  if (full == kFlags && have >= fixed + behind) return;
  check_field("index_bytes", have * 8, (fixed + behind) * 8);
}

NormalForm read_index(const IndexView& index) {
  const auto presence_kind = static_cast<Presence>(index.header.flags & 3);
  const auto full_kind = static_cast<Full>(index.header.flags >> 2);
  check_kinds(index, presence_kind, full_kind);
  const uint64_t split =
      presence_words(presence_kind, index.header.present_words, index.shard.slots);
  const auto behind = index.words.subspan(split);
  NormalForm normal;
  normal.presence = read_presence(index, presence_kind, index.words.first(split));
  if (full_kind == kNoFlags) normal.masks = index.alias(behind);
  if (full_kind == kFlags)
    normal.masks = read_masks_behind_flags(index, words_of(normal.presence), behind);
  if (full_kind == kAllFull) normal.masks = full_masks(index, words_of(normal.presence));
  return normal;
}

}  // namespace

const Format kWordsFormat{Encoding::words, plan, max_bytes, nullptr, write_index, read_index};

}  // namespace zen
