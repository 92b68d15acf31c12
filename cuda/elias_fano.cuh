// Elias-Fano lists (core/elias_fano.h), one thread a number.
#pragma once

#include "core/elias_fano.h"
#include "cuda/tile.cuh"

namespace zen::cuda {

// Adds number `index` of the list. REQUIRES: `words` was cleared.
__device__ inline void write_number(const EliasFano& list, uint64_t* words, uint64_t index,
                                    uint64_t number) {
  const uint64_t width = list.low_width();
  if (width != 0) {
    const uint64_t low = number & low_bits(width), bit = index * width, shift = bit % 64;
    atomic_or(words + bit / 64, low << shift);
    if (shift + width > 64) atomic_or(words + bit / 64 + 1, low >> (64 - shift));
  }
  const uint64_t high = (number >> width) + index;
  atomic_or(words + list.low_words() + high / 64, uint64_t{1} << high % 64);
}

// The low bits of number `index`. REQUIRES: index < count.
__device__ inline uint64_t low_part(const EliasFano& list, const uint64_t* words, uint64_t index) {
  const uint64_t width = list.low_width();
  if (width == 0) return 0;
  const uint64_t bit = index * width, shift = bit % 64;
  uint64_t low = words[bit / 64] >> shift;
  if (shift + width > 64) low |= words[bit / 64 + 1] << (64 - shift);
  return low & low_bits(width);
}

}  // namespace zen::cuda
