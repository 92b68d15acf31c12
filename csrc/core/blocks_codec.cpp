// Encoding `blocks`: whole blocks of 256 elements (4 consecutive slots), as OmniReduce sends them.
// A block with one listed element travels with all its elements, zeros included, so the receiver
// sees all of them as listed. Kept as a baseline, and cheap where elements come in large clusters.
//
//   index := present{blocks}      1 bit each, padded to 8 bytes with zeros

#include <algorithm>

#include "core/bits.h"
#include "core/format.h"
#include "core/full_masks.h"
#include "core/spread.h"

namespace zen {

namespace {

constexpr uint64_t kBlockSlots = 4;

uint64_t index_words(const Shard& shard) {
  return words_for_bits((shard.slots + kBlockSlots - 1) / kBlockSlots);
}

// The 16 block bits of 64 slots, and back.
constexpr uint64_t kFirstOfBlock = 0x1111111111111111u;

uint64_t gather_blocks(uint64_t slots) {
  slots |= slots >> 1;
  uint64_t x = (slots | slots >> 2) & kFirstOfBlock;
  x = (x | x >> 3) & 0x0303030303030303u;
  x = (x | x >> 6) & 0x000f000f000f000fu;
  x = (x | x >> 12) & 0x000000ff000000ffu;
  return (x | x >> 24) & 0xffff;
}

uint64_t spread_blocks(uint64_t blocks) {
  uint64_t x = blocks & 0xffff;
  x = (x | x << 24) & 0x000000ff000000ffu;
  x = (x | x << 12) & 0x000f000f000f000fu;
  x = (x | x << 6) & 0x0303030303030303u;
  x = (x | x << 3) & kFirstOfBlock;
  return x * 0xf;
}

// Slots of present blocks among the 64 that presence word `at` of the shard stands for.
uint64_t slots_in_word(const Shard& shard, uint64_t at) {
  return low_bits(std::min<uint64_t>(64, shard.slots - at * 64));
}

// Presence bits after each present block has been made whole: word `at` of them.
uint64_t whole_blocks(const ShardSelection& selection, uint64_t at) {
  return spread_blocks(gather_blocks(selection.presence_bits()[at])) &
         slots_in_word(selection.shard, at);
}

// Elements of `present` slots, of which the shard's last one may be one.
uint64_t elements_of(const Shard& shard, uint64_t present, bool has_last) {
  return present * kWordElems - (has_last ? kWordElems - shard.last_slot_elements() : 0);
}

Plan plan(const ShardSelection& selection) {
  const Shard& shard = selection.shard;
  uint64_t present = 0, last = 0;
  for (uint64_t at = 0; at < shard.presence_words(); ++at) {
    last = whole_blocks(selection, at);
    present += static_cast<uint64_t>(std::popcount(last));
  }
  const bool has_last = shard.slots != 0 && bit_at(&last, (shard.slots - 1) % 64);
  return {elements_of(shard, present, has_last), present, index_words(shard) * 8, 0};
}

uint64_t max_bytes(const Shard& shard, DType dtype) {
  return round_up_8(shard.elements * size_of(dtype)) + index_words(shard) * 8;
}

void write_values(const ShardSelection& selection, std::byte* out) {
  ValueSpreader spreader(selection, out);
  for (uint64_t at = 0; at < selection.shard.presence_words(); ++at) {
    const uint64_t slots = std::min<uint64_t>(64, selection.shard.slots - at * 64);
    const uint64_t whole = whole_blocks(selection, at);
    for (uint64_t slot = 0; slot < slots; ++slot) {
      if (whole >> slot & 1)
        spreader.next_slot();
      else
        spreader.skip_slot();
    }
  }
}

void write_index(const ShardSelection& selection, const Plan&, uint64_t* out) {
  std::fill_n(out, index_words(selection.shard), uint64_t{0});
  for (uint64_t at = 0; at < selection.shard.presence_words(); ++at)
    out[at / 4] |= gather_blocks(selection.presence_bits()[at]) << at % 4 * 16;
}

NormalForm read_index(const IndexView& index) {
  const Shard& shard = index.shard;
  check_field("flags", index.header.flags, 0);
  check_field("index_bytes", index.header.index_bytes, index_words(shard) * 8);
  if (!padding_is_zero(index.words, (shard.slots + kBlockSlots - 1) / kBlockSlots))
    throw MalformedMessage("malformed message: padding of the block bits is not zero");
  NormalForm normal;
  normal.presence = index.allocate(shard.presence_words() * 8);
  for (uint64_t at = 0; at < shard.presence_words(); ++at)
    words_of(normal.presence)[at] =
        spread_blocks(index.words[at / 4] >> at % 4 * 16) & slots_in_word(shard, at);
  normal.masks = full_masks(index, words_of(normal.presence));
  return normal;
}

}  // namespace

const Format kBlocksFormat{Encoding::blocks, plan,        max_bytes,
                           write_values,     write_index, read_index};

}  // namespace zen
