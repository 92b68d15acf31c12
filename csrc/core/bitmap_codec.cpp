// Encoding `bitmap`: one bit for every element of the shard, in slot then element order. This is
// the paper's hash bitmap at the granularity of words. It costs the same whatever is listed, so it
// suits scattered elements above about a fifth of all.
//
//   index := mask{slots}      8 bytes each; bits past the gradient's end are 0

#include "core/bits.h"
#include "core/format.h"

namespace zen {

namespace {

Plan plan(const ShardSelection& selection) {
  return {selection.count, selection.present_words, selection.shard.slots * 8, 0};
}

uint64_t max_bytes(const Shard& shard, DType dtype) {
  return round_up_8(shard.elements * size_of(dtype)) + shard.slots * 8;
}

// Without a branch on the presence bits: they are coin tosses.
void write_index(const ShardSelection& selection, const Plan&, uint64_t* out) {
  const uint64_t* presence = selection.presence_bits();
  const uint64_t* masks = selection.mask_list();
  uint64_t left = selection.present_words;
  for (uint64_t slot = 0; slot < selection.shard.slots; ++slot) {
    const uint64_t present = presence[slot / 64] >> slot % 64 & 1;
    out[slot] = left != 0 ? *masks & (0 - present) : 0;
    masks += present;
    left -= present;
  }
}

Buffer presence_of(const IndexView& index) {
  Buffer presence = index.allocate(index.shard.presence_words() * 8);
  for (uint64_t first = 0; first < index.shard.slots; first += 64) {
    const uint64_t slots = std::min<uint64_t>(64, index.shard.slots - first);
    uint64_t bits = 0;
    for (uint64_t slot = 0; slot < slots; ++slot)
      bits |= uint64_t{index.words[first + slot] != 0} << slot;
    words_of(presence)[first / 64] = bits;
  }
  return presence;
}

Buffer present_masks(const IndexView& index) {
  if (index.header.present_words == index.shard.slots) return index.alias(index.words);
  Buffer masks = index.allocate((index.header.present_words + uint64_t{1}) * 8);
  uint64_t* out = words_of(masks);
  for (const uint64_t mask : index.words) {
    *out = mask;
    out += mask != 0;
  }
  return masks.slice(0, index.header.present_words * uint64_t{8});
}

NormalForm read_index(const IndexView& index) {
  check_field("flags", index.header.flags, 0);
  check_field("index_bytes", index.header.index_bytes, index.shard.slots * 8);
  NormalForm normal;
  normal.presence = presence_of(index);
  const std::span<const uint64_t> bits(words_of(normal.presence), index.shard.presence_words());
  check_field("number of present words", count_ones(bits), index.header.present_words);
  normal.masks = present_masks(index);
  return normal;
}

}  // namespace

const Format kBitmapFormat{Encoding::bitmap, plan, max_bytes, nullptr, write_index, read_index};

}  // namespace zen
