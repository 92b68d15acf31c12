// The inner loop of select(), written once for all instruction sets. Only templates over the word
// kernels may stand here (see avx2_target.h).
#pragma once

#include <algorithm>

#include "core/bits.h"
#include "core/select_kernels.h"

namespace zen {

template <class Words, class T>
inline void select_word(T* elements, uint64_t count, OwnerStream& stream) {
  const uint64_t slot = stream.slot++;
  const uint64_t mask = Words::list(elements, count);
  if (mask == 0) return;
  set_bit(stream.presence, slot);
  *stream.masks++ = mask;
  if (mask == low_bits(count)) ++stream.full_words;
  T* values = reinterpret_cast<T*>(stream.values);
  stream.values = reinterpret_cast<std::byte*>(Words::compress(elements, mask, values));
}

template <class Words, class T>
void select_words(std::byte* gradient, WordRange range, Deal deal, OwnerStream* streams) {
  T* elements = reinterpret_cast<T*>(gradient);
  const auto n = static_cast<uint64_t>(deal.owners);
  for (uint64_t word = range.begin; word < range.end;) {
    const uint64_t block_end = n == 1 ? range.end : std::min(range.end, (word / n + 1) * n);
    for (int owner = deal.owner(word); word < block_end; ++word) {
      select_word<Words>(elements + word * kWordElems, kWordElems, streams[owner]);
      if (++owner == deal.owners) owner = 0;
    }
  }
}

}  // namespace zen
