// The inner loop of decode_write(), written once for all instruction sets. Only templates over the
// word kernels may stand here (see avx2_target.h).
#pragma once

#include <bit>

#include "core/decode_write_kernels.h"
#include "core/placement.h"
#include "core/words_scalar.h"

namespace zen {

// Near the end of the message the scalar words take over, which read no further than they must.
template <class Words, class T>
void write_words(const uint64_t* words, int count, WriteStream& stream) {
  const T* values = reinterpret_cast<const T*>(stream.values);
  for (int i = 0; i < count; ++i) {
    T* elements = reinterpret_cast<T*>(stream.gradient) + words[i] * kWordElems;
    const uint64_t mask = *stream.masks++;
    const int listed = std::popcount(mask);
    if (may_overshoot(values + listed, stream.end))
      Words::store(values, mask, elements);
    else
      ScalarWords::store(values, mask, elements);
    values += listed;
  }
  stream.values = reinterpret_cast<const std::byte*>(values);
}

}  // namespace zen
