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

// Turns ascending positions back into presence bits and masks. Safe for any positions: one that
// does not ascend or lies outside the shard is rejected, as is a number of slots other than the
// header's.
class PositionSink {
 public:
  explicit PositionSink(const IndexView& index)
      : elements_(index.shard.elements),
        limit_(index.header.present_words),
        presence_(index.allocate(index.shard.presence_words() * 8)),
        masks_(index.allocate((limit_ + 1) * 8)) {
    std::fill_n(words_of(presence_), index.shard.presence_words(), uint64_t{0});
  }

  void push(uint64_t position) {
    if (position < least_ || position >= elements_) reject(position);
    least_ = position + 1;
    const uint64_t slot = position / kWordElems, bit = uint64_t{1} << position % kWordElems;
    // Without a branch, since whether a word has a second element is a coin toss. Words in excess
    // overwrite the spare one at the end; finish() then notices.
    const bool new_word = slot != slot_;
    slot_ = slot;
    used_ = std::min(used_ + new_word, limit_ + 1);
    mask_ = new_word ? bit : mask_ | bit;
    words_of(masks_)[used_ - 1] = mask_;
    set_bit(words_of(presence_), slot);
  }

  NormalForm finish() {
    check_field("number of present words", used_, limit_);
    return {presence_, masks_.slice(0, limit_ * 8)};
  }

 private:
  [[noreturn]] void reject(uint64_t position) const;

  uint64_t elements_, limit_;
  Buffer presence_, masks_;
  uint64_t least_ = 0;
  uint64_t slot_ = ~uint64_t{0}, mask_ = 0;
  uint64_t used_ = 0;
};

}  // namespace zen
