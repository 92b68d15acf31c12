// The inner loop of decode_write(), written once for all instruction sets. Only templates over the
// word kernels may stand here (see avx2_target.h).
#pragma once

#include <algorithm>
#include <bit>

#include "core/decode_write_kernels.h"
#include "core/placement.h"
#include "core/words_scalar.h"

namespace zen {

// Fetches the cache lines that the masks of a batch name. Which ones is not guessable: the words of
// an owner are scattered over the gradient.
template <class Words, class T>
ZEN_INLINE void prefetch_word(const T* elements, uint64_t mask) {
  if (std::popcount(mask) <= kFewValues) {
    for (int i = 0; i < kFewValues; ++i) {
      __builtin_prefetch(elements + std::countr_zero(mask), 1);
      const uint64_t next = mask & (mask - 1);
      mask = next != 0 ? next : mask;
    }
  } else {
    constexpr size_t kLineElems = 64 / sizeof(T);
    for (size_t elem = 0; elem < kWordElems; elem += kLineElems)
      __builtin_prefetch(elements + elem, 1);
  }
}

// Near the end of a message the scalar words take over, which read no further than they must.
template <class Words, class T>
void write_words(const WordBatch& now, const WordBatch& next, std::byte* gradient) {
  T* elements = reinterpret_cast<T*>(gradient);
  for (int i = 0; i < std::max(now.count, next.count); ++i) {
    if (i < next.count) prefetch_word<Words>(elements + next.words[i] * kWordElems, next.masks[i]);
    if (i >= now.count) continue;
    ValueStream& stream = *now.streams[i];
    const T* values = reinterpret_cast<const T*>(stream.values);
    T* word = elements + now.words[i] * kWordElems;
    const uint64_t mask = now.masks[i];
    const int count = std::popcount(mask);
    if (may_overshoot(values + count, stream.end))
      Words::store(values, mask, word);
    else
      ScalarWords::store(values, mask, word);
    stream.values = reinterpret_cast<const std::byte*>(values + count);
  }
}

}  // namespace zen
