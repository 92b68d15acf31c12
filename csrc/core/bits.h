// Arithmetic on bit strings kept in 64-bit words: bit b of the string is bit b % 64 of word b / 64.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace zen {

// 64-bit words that `bits` bits occupy. REQUIRES: bits <= 2^64 - 64.
constexpr uint64_t words_for_bits(uint64_t bits) {
  return (bits + 63) / 64;
}

// The `count` lowest bits set. REQUIRES: count <= 64.
constexpr uint64_t low_bits(uint64_t count) {
  return count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

constexpr uint64_t round_up_8(uint64_t bytes) {
  return (bytes + 7) / 8 * 8;
}

constexpr bool bit_at(const uint64_t* bits, uint64_t index) {
  return (bits[index / 64] >> (index % 64) & 1) != 0;
}

inline void set_bit(uint64_t* bits, uint64_t index) {
  bits[index / 64] |= uint64_t{1} << index % 64;
}

// True if no bit at or after `bits` is set. REQUIRES: words.size() == words_for_bits(bits).
inline bool padding_is_zero(std::span<const uint64_t> words, uint64_t bits) {
  return bits % 64 == 0 || (words.back() & ~low_bits(bits % 64)) == 0;
}

uint64_t count_ones(std::span<const uint64_t> words);

// Sets the first `bits` bits and clears the padding. REQUIRES: room for words_for_bits(bits).
inline void fill_bits(uint64_t* words, uint64_t bits) {
  for (uint64_t i = 0; i < bits / 64; ++i) words[i] = ~uint64_t{0};
  if (bits % 64 != 0) words[bits / 64] = low_bits(bits % 64);
}

// Calls f(index) for every set bit, ascending.
template <class F>
void for_each_bit(std::span<const uint64_t> words, F&& f) {
  for (uint64_t i = 0; i < words.size(); ++i)
    for (uint64_t rest = words[i]; rest != 0; rest &= rest - 1)
      f(i * 64 + static_cast<uint64_t>(std::countr_zero(rest)));
}

}  // namespace zen
