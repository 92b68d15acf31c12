// The inner loops of merge(), written once for all instruction sets. Only templates over the word
// kernels may stand here (see avx2_target.h).
#pragma once

#include <algorithm>
#include <bit>

#include "core/merge_kernels.h"
#include "core/words_scalar.h"

namespace zen {

// A long word that no other rank lists stays where it is until it is packed. Near the end of the
// message the scalar words take over, which read no further than they must.
template <class Words, class T>
void add_rank(RankStream& rank, MergeBlock& block) {
  const T* values = reinterpret_cast<const T*>(rank.values);
  const uint64_t* masks = rank.masks;
  uint64_t summed = block.summed;  // in registers: stores through other pointers cannot change them
  for (uint64_t rest = rank.presence[block.index]; rest != 0; rest &= rest - 1) {
    const int slot = std::countr_zero(rest);
    const uint64_t bit = rest & -rest, mask = *masks++;
    const int count = std::popcount(mask);
    const bool room = may_overshoot(values + count, rank.end);
    block.masks[slot] |= mask;
    if (room && count > kFewValues && (summed & bit) == 0) {
      block.lone[slot] = reinterpret_cast<const std::byte*>(values);
    } else {
      summed |= bit;
      if (room)
        Words::add(values, mask, block.sums[slot]);
      else
        ScalarWords::add(values, mask, block.sums[slot]);
    }
    values += count;
  }
  block.summed = summed;
  rank.masks = masks;
  rank.values = reinterpret_cast<const std::byte*>(values);
}

template <class Words, class T>
uint64_t pack_block(MergeBlock& block, MaskStream& out) {
  float* packed = block.packed;
  for (uint64_t rest = block.listed; rest != 0; rest &= rest - 1) {
    const int slot = std::countr_zero(rest);
    const uint64_t mask = block.masks[slot];
    *out.masks++ = mask;
    out.full_words += mask == ~uint64_t{0};
    block.masks[slot] = 0;
    if ((block.summed & rest & -rest) != 0) {
      packed = Words::compress(block.sums[slot], mask, packed);
      std::fill_n(block.sums[slot], kWordElems, -0.0f);
    } else {
      const auto count = static_cast<uint64_t>(std::popcount(mask));
      Words::widen(reinterpret_cast<const T*>(block.lone[slot]), count, packed);
      packed += count;
    }
  }
  return static_cast<uint64_t>(packed - block.packed);
}

template <class Words, class T>
std::byte* divide_block(const float* sums, uint64_t count, float divisor, std::byte* out) {
  Words::divide(sums, count, divisor, reinterpret_cast<T*>(out));
  return out + count * sizeof(T);
}

template <class Words, class T>
constexpr MergeKernels merge_kernels() {
  return {add_rank<Words, T>, pack_block<Words, T>, divide_block<Words, T>};
}

}  // namespace zen
