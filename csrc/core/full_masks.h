// Masks of words that list every element they have. All are 64 ones, but for the shard's last word
// if the gradient ends in it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/bits.h"
#include "core/format.h"

namespace zen {

// The mask that means `full` for present word `index` of `present`.
class FullMask {
 public:
  FullMask(const Shard& shard, const uint64_t* presence, uint64_t present) {
    if (shard.slots == 0 || !bit_at(presence, shard.slots - 1)) return;
    short_index_ = present - 1;
    short_mask_ = low_bits(shard.last_slot_elements());
  }

  uint64_t of(uint64_t index) const { return index == short_index_ ? short_mask_ : ~uint64_t{0}; }

 private:
  uint64_t short_index_ = ~uint64_t{0}, short_mask_ = 0;
};

// One full mask for each present word. The header's count of them need not be right yet.
inline Buffer full_masks(const IndexView& index, const uint64_t* presence) {
  const uint64_t present = index.header.present_words;
  Buffer masks = index.allocate(present * 8);
  std::fill_n(words_of(masks), present, ~uint64_t{0});
  if (present != 0)
    words_of(masks)[present - 1] = FullMask(index.shard, presence, present).of(present - 1);
  return masks;
}

}  // namespace zen
