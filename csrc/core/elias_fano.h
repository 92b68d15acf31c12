// Elias-Fano coding of a strictly ascending list of `count` numbers below `universe`.
//
// Each number is cut in two. The low_width() low bits are stored as they are, one after another;
// the rest, a non-decreasing sequence h[0], h[1], ..., is stored in unary: bit h[i] + i of a second
// bit string is set. With low_width = floor(log2(universe / count)) both cost about
// 2 + log2(universe / count) bits a number, at most half a bit more than the entropy of a random
// list, and never more than 2 * universe bits together. Both strings are padded to 64 bits with
// zeros; the low bits come first.
//
// Elias (1974), Fano (1971); the layout is the usual one, cut to its exact length.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "core/bits.h"

namespace zen {

// Lengths of the two strings. REQUIRES: count <= universe <= 2^63.
class EliasFano {
 public:
  constexpr EliasFano(uint64_t count, uint64_t universe) : count_(count), universe_(universe) {
    if (count == 0) return;
    low_width_ = static_cast<uint64_t>(std::bit_width(universe / count)) - 1;
    high_bits_ = count + ((universe - 1) >> low_width_);
  }

  constexpr uint64_t count() const { return count_; }
  constexpr uint64_t universe() const { return universe_; }
  constexpr uint64_t low_width() const { return low_width_; }
  constexpr uint64_t low_bits() const { return count_ * low_width_; }
  constexpr uint64_t low_words() const { return words_for_bits(low_bits()); }
  constexpr uint64_t high_bits() const { return high_bits_; }
  constexpr uint64_t high_words() const { return words_for_bits(high_bits_); }
  constexpr uint64_t words() const { return low_words() + high_words(); }
  constexpr uint64_t bytes() const { return words() * 8; }

 private:
  uint64_t count_, universe_;
  uint64_t low_width_ = 0, high_bits_ = 0;
};

// Writes numbers one by one. After exactly layout.count() of them and finish(), all layout.words()
// words at `out` are written, padding included.
class EliasFanoWriter {
 public:
  EliasFanoWriter(const EliasFano& layout, uint64_t* out)
      : low_width_(layout.low_width()),
        low_mask_(low_bits(layout.low_width())),
        low_(out),
        high_(out + layout.low_words()) {
    std::fill_n(high_, layout.high_words(), uint64_t{0});
  }

  // REQUIRES: number is larger than the one before and below the universe.
  void push(uint64_t number) {
    push_low(number & low_mask_);
    const uint64_t bit = (number >> low_width_) + index_++;
    if (bit / 64 != high_at_) {
      high_[high_at_] = high_word_;
      high_word_ = 0;
      high_at_ = bit / 64;
    }
    high_word_ |= uint64_t{1} << bit % 64;
  }

  void finish() {
    if (low_used_ != 0) *low_ = low_word_;
    if (index_ != 0) high_[high_at_] = high_word_;
  }

 private:
  void push_low(uint64_t low) {
    low_word_ |= low << low_used_;
    low_used_ += low_width_;
    if (low_used_ < 64) return;
    *low_++ = low_word_;
    low_used_ -= 64;
    // What did not fit; if all of it did, the shift would be by the whole width of `low`.
    low_word_ = low_used_ == 0 ? 0 : low >> (low_width_ - low_used_);
  }

  uint64_t low_width_, low_mask_;
  uint64_t *low_, *high_;
  uint64_t low_word_ = 0, low_used_ = 0;  // the word being filled, and its used bits
  uint64_t high_word_ = 0, high_at_ = 0;  // the word being filled, and its place
  uint64_t index_ = 0;
};

// Checks the strings' shape: exactly count() unary ones and zero padding. Throws MalformedMessage.
// REQUIRES: words.size() == layout.words().
void check_shape(const EliasFano& layout, std::span<const uint64_t> words);

[[noreturn]] void reject_number(uint64_t number, uint64_t least, uint64_t universe);

// Calls f(number) for every number. Throws MalformedMessage if the list does not ascend strictly or
// leaves the universe (f has then seen a correct beginning). REQUIRES: check_shape() has passed.
template <class F>
void for_each_number(const EliasFano& layout, std::span<const uint64_t> words, F&& f) {
  const uint64_t* low = words.data();
  const auto high = words.subspan(layout.low_words());
  const uint64_t width = layout.low_width(), mask = low_bits(width);
  uint64_t index = 0, least = 0;
  for_each_bit(high, [&](uint64_t bit) {
    const uint64_t at = index * width, shift = at % 64;
    uint64_t part = 0;
    if (width != 0) {
      part = low[at / 64] >> shift;
      if (shift + width > 64) part |= low[at / 64 + 1] << (64 - shift);
    }
    const uint64_t number = (bit - index) << width | (part & mask);
    if (number < least || number >= layout.universe())
      reject_number(number, least, layout.universe());
    f(number);
    least = number + 1;
    ++index;
  });
}

}  // namespace zen
