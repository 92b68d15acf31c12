// The flags of the encoding `words` (docs/wire-format.md), as kernels read them.
#pragma once

#include <cstdint>

#include "core/bits.h"
#include "core/elias_fano.h"

namespace zen::cuda {

struct WordsKinds {
  enum Presence : unsigned { kBitmap = 0, kList = 1, kAllPresent = 2 };
  enum Full : unsigned { kNoFlags = 0, kAllFull = 1, kFlags = 2 };

  unsigned presence, full;

  constexpr bool known() const { return presence <= kAllPresent && full <= kFlags; }
  constexpr uint64_t presence_words(const EliasFano& list, uint64_t slots) const {
    return presence == kBitmap ? words_for_bits(slots) : presence == kList ? list.words() : 0;
  }
};

constexpr WordsKinds words_kinds(uint8_t flags) {
  return {flags & 3u, static_cast<unsigned>(flags) >> 2};
}

}  // namespace zen::cuda
