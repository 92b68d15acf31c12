// Between presence bits with masks and a list of positions. An element's position in its shard is
// slot * kWordElems + its place in the word: below shard.elements, because only the last slot can
// be short.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "core/bits.h"
#include "core/format.h"

namespace zen {

// Calls f(position) for every listed element, ascending.
template <class F>
void for_each_position(const ShardSelection& selection, F&& f) {
  const uint64_t* mask = selection.mask_list();
  for_each_bit({selection.presence_bits(), selection.shard.presence_words()}, [&](uint64_t slot) {
    for (uint64_t rest = *mask++; rest != 0; rest &= rest - 1)
      f(slot * kWordElems + static_cast<uint64_t>(std::countr_zero(rest)));
  });
}

[[noreturn]] void reject_position(uint64_t position, uint64_t least, uint64_t elements);

// Writes ascending positions as presence bits and masks. Safe for any positions: one that does not
// ascend or lies outside the shard is rejected, and masks() is not `present_words` if there are
// more or fewer words. It holds plain numbers only, so that a compiler can keep all of it in
// registers.
class PositionWriter {
 public:
  // REQUIRES: presence words are 0; there is room for present_words + 1 masks.
  PositionWriter(const Shard& shard, uint64_t present_words, uint64_t* presence, uint64_t* masks)
      : elements_(shard.elements), limit_(present_words), presence_(presence), masks_(masks) {}

  void push(uint64_t position) {
    if (position < least_ || position >= elements_) reject_position(position, least_, elements_);
    least_ = position + 1;
    const uint64_t slot = position / kWordElems;
    // Without a branch, since whether a word has a second element is a coin toss. Words in excess
    // overwrite the spare one at the end.
    const bool same_word = slot == slot_, same_group = slot / 64 == slot_ / 64;
    slot_ = slot;
    used_ = std::min(used_ + !same_word, limit_ + 1);
    mask_ = (same_word ? mask_ : 0) | uint64_t{1} << position % kWordElems;
    group_ = (same_group ? group_ : 0) | uint64_t{1} << slot % 64;
    masks_[used_ - 1] = mask_;
    presence_[slot / 64] = group_;
  }

  uint64_t masks() const { return used_; }

 private:
  const uint64_t elements_, limit_;
  uint64_t* const presence_;
  uint64_t* const masks_;
  uint64_t least_ = 0;
  uint64_t slot_ = ~uint64_t{0};   // the last position's
  uint64_t mask_ = 0, group_ = 0;  // its mask, and the presence word it is in
  uint64_t used_ = 0;
};

// Zeroed presence bits and room for the header's number of masks and a spare one.
NormalForm room_for_positions(const IndexView& index);

// The same, once `masks` masks have been written.
NormalForm without_spare_mask(const IndexView& index, NormalForm normal, uint64_t masks);

// The normal form of the positions that for_each(push) passes to `push`, ascending.
template <class ForEach>
NormalForm collect_positions(const IndexView& index, ForEach&& for_each) {
  NormalForm normal = room_for_positions(index);
  PositionWriter writer(index.shard, index.header.present_words, words_of(normal.presence),
                        words_of(normal.masks));
  for_each([&](uint64_t position) { writer.push(position); });
  return without_spare_mask(index, std::move(normal), writer.masks());
}

}  // namespace zen
