// The inner loops of decode_write(), written once for all instruction sets. Only templates over the
// word kernels may stand here (see avx2_target.h).
#pragma once

#include <bit>

#include "core/bits.h"
#include "core/decode_write_kernels.h"
#include "core/placement.h"
#include "core/words_scalar.h"

namespace zen {

template <class Words, class T>
void gather_words(const OwnerWords& words, WriteStream& stream, WordWindow& window) {
  const uint64_t* mask = stream.masks;
  const T* values = reinterpret_cast<const T*>(stream.values);
  uint64_t* const masks = window.masks.data();
  const std::byte** const places = window.values.data();
  for (uint64_t rest = words.blocks; rest != 0; rest &= rest - 1) {
    const int block = std::countr_zero(rest);
    const int turn = words.owner - words.first_owners[block];
    const auto word =
        static_cast<size_t>(block * words.owners + (turn < 0 ? turn + words.owners : turn));
    masks[word] = *mask;
    places[word] = reinterpret_cast<const std::byte*>(values);
    values += std::popcount(*mask++);
  }
  stream.masks = mask;
  stream.values = reinterpret_cast<const std::byte*>(values);
  window.vectors &= may_overshoot(values, stream.end);
}

// A plain loop is best where a word has few elements: memory decides, and while it is slow the
// processor runs ahead, through branches that nobody can predict too.
template <class Words, class T>
ZEN_INLINE void write_word(const T* values, uint64_t mask, bool vectors, T* elements) {
  constexpr int kMany = 8;
  if (vectors && std::popcount(mask) >= kMany)
    Words::store(values, mask, elements);
  else
    ScalarWords::store(values, mask, elements);
}

template <class Words, class T>
void write_words(WordWindow& window, std::byte* gradient) {
  T* elements = reinterpret_cast<T*>(gradient) + window.first_word * kWordElems;
  const bool vectors = window.vectors;
  for (size_t first = 0; first < window.masks.size(); first += 64) {
    uint64_t* const masks = window.masks.data() + first;
    for (uint64_t rest = Words::non_zeros(masks); rest != 0; rest &= rest - 1) {
      const auto word = static_cast<size_t>(std::countr_zero(rest));
      write_word<Words>(reinterpret_cast<const T*>(window.values[first + word]), masks[word],
                        vectors, elements + (first + word) * kWordElems);
      masks[word] = 0;
    }
  }
  window.vectors = true;
}

template <class Words, class T>
constexpr WriteKernels write_kernels() {
  return {gather_words<Words, T>, write_words<Words, T>};
}

}  // namespace zen
