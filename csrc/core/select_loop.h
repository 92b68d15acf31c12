// The inner loop of select(), written once for all instruction sets. Only templates over the word
// kernels may stand here (see avx2_target.h).
#pragma once

#include <algorithm>

#include "core/bits.h"
#include "core/select_kernels.h"
#include "core/words_scalar.h"

namespace zen {

// Appends the listed elements of a word of `count` elements. Without a branch on whether there are
// any: at 1% uniform density half of the words are empty, and a processor would guess wrong on
// every other one.
template <class Words, class T>
ZEN_INLINE void append_word(const T* elements, uint64_t mask, uint64_t count, OwnerStream& stream) {
  const uint64_t slot = stream.slot++;
  const uint64_t is_present = mask != 0;
  stream.presence[slot / 64] |= is_present << slot % 64;
  *stream.masks = mask;  // in bounds: the slots before this one have at most `slot` masks
  stream.masks += is_present;
  if (mask == low_bits(count)) ++stream.full_words;
  T* values = reinterpret_cast<T*>(stream.values);
  stream.values = reinterpret_cast<std::byte*>(Words::compress(elements, mask, values));
}

template <class Words, class T>
ZEN_INLINE void select_word(T* elements, uint64_t count, OwnerStream& stream) {
  const uint64_t mask = Words::list(elements, count);
  append_word<Words>(elements, mask, count, stream);
}

// The processor's own prefetcher loses the stream at page boundaries and while a branch was guessed
// wrong. Two pages ahead was the best of 0.5 to 8 KiB.
template <class Words, class T>
ZEN_INLINE void prefetch_ahead(const T* elements) {
  constexpr size_t kAheadBytes = 8192, kLineBytes = 64;
  const char* ahead = reinterpret_cast<const char*>(elements) + kAheadBytes;
  for (size_t byte = 0; byte < kWordElems * sizeof(T); byte += kLineBytes)
    __builtin_prefetch(ahead + byte);
}

template <class Words, class T>
void select_words(std::byte* gradient, WordRange range, Deal deal, OwnerStream* streams) {
  T* elements = reinterpret_cast<T*>(gradient) + range.begin * kWordElems;
  const auto n = static_cast<uint64_t>(deal.owners);
  for (uint64_t word = range.begin; word < range.end;) {
    const uint64_t block_end = n == 1 ? range.end : std::min(range.end, (word / n + 1) * n);
    for (int owner = deal.owner(word); word < block_end; ++word, elements += kWordElems) {
      prefetch_ahead<Words>(elements);
      select_word<Words>(elements, kWordElems, streams[owner]);
      if (++owner == deal.owners) owner = 0;
    }
  }
}

}  // namespace zen
