// Copies a selection's values slot by slot with zeros where an element is not listed: the values of
// the encodings that send more elements than are listed.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/bits.h"
#include "core/message.h"
#include "core/selection.h"

namespace zen {

class ValueSpreader {
 public:
  // Writes to `out`, which must not overlap the selection's values.
  ValueSpreader(const ShardSelection& selection, std::byte* out)
      : selection_(selection),
        size_(size_of(selection.dtype)),
        mask_(selection.mask_list()),
        values_(selection.message.data + kHeaderBytes),
        out_(out) {}

  // Writes every element of the next slot.
  void next_slot() {
    const uint64_t elements =
        slot_ + 1 < selection_.shard.slots ? kWordElems : selection_.shard.last_slot_elements();
    const uint64_t mask = bit_at(selection_.presence_bits(), slot_++) ? *mask_++ : 0;
    if (mask == low_bits(elements)) {
      copy(elements);
      return;
    }
    std::memset(out_, 0, elements * size_);
    for (uint64_t rest = mask; rest != 0; rest &= rest - 1) {
      const auto elem = static_cast<uint64_t>(std::countr_zero(rest));
      if (size_ == 4)
        std::memcpy(out_ + elem * 4, values_, 4);
      else
        std::memcpy(out_ + elem * 2, values_, 2);
      values_ += size_;
    }
    out_ += elements * size_;
  }

  // Passes over a slot that lists nothing.
  void skip_slot() { ++slot_; }

 private:
  void copy(uint64_t elements) {
    std::memcpy(out_, values_, elements * size_);
    values_ += elements * size_;
    out_ += elements * size_;
  }

  const ShardSelection& selection_;
  size_t size_;
  const uint64_t* mask_;
  const std::byte* values_;
  std::byte* out_;
  uint64_t slot_ = 0;
};

}  // namespace zen
