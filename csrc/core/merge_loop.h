// The inner loops of merge(), written once for all instruction sets. Only templates over the word
// kernels may stand here (see avx2_target.h).
#pragma once

#include <bit>

#include "core/merge_kernels.h"
#include "core/words_scalar.h"

namespace zen {

// Near the end of the message the scalar words take over, which read no further than they must.
template <class Words, class T>
void add_rank(RankStream& rank, MergeBlock& block) {
  const T* values = reinterpret_cast<const T*>(rank.values);
  for (uint64_t rest = rank.presence[block.index]; rest != 0; rest &= rest - 1) {
    const int slot = std::countr_zero(rest);
    const uint64_t bit = rest & -rest, mask = *rank.masks++;
    const int count = std::popcount(mask);
    const bool room = may_overshoot(values + count, rank.end);
    if ((block.begun & bit) != 0) {
      room ? Words::add(values, mask, block.sums[slot])
           : ScalarWords::add(values, mask, block.sums[slot]);
      block.masks[slot] |= mask;
    } else {
      block.masks[slot] = mask;
      if (!room) {
        ScalarWords::expand(values, mask, block.sums[slot]);
        block.summed |= bit;
      } else if ((block.summed & bit) != 0) {
        Words::expand(values, mask, block.sums[slot]);
      } else {
        block.lone[slot] = reinterpret_cast<const std::byte*>(values);
      }
    }
    values += count;
  }
  block.begun |= rank.presence[block.index];
  rank.values = reinterpret_cast<const std::byte*>(values);
}

template <class Words, class T>
uint64_t pack_block(MergeBlock& block) {
  float* out = block.packed;
  for (uint64_t rest = block.listed; rest != 0; rest &= rest - 1) {
    const int slot = std::countr_zero(rest);
    const uint64_t mask = block.masks[slot];
    if ((block.summed & rest & -rest) != 0) {
      out = Words::compress(block.sums[slot], mask, out);
    } else {
      const auto count = static_cast<uint64_t>(std::popcount(mask));
      Words::widen(reinterpret_cast<const T*>(block.lone[slot]), count, out);
      out += count;
    }
  }
  return static_cast<uint64_t>(out - block.packed);
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
