// What an element of DGC may be in the next iteration: see the top of dgc_sample.h. In a header of
// its own because every device computes the same.
#pragma once

#include <bit>
#include <cstdint>

#include "core/dgc_words_scalar.h"
#include "core/hash.h"

namespace zen {

// The guess, or its square: the root is left to the processor, whose instruction rounds correctly.
struct DgcGuess {
  float value = 0;
  bool is_square = false;
};

// `rest` is what stays in the residual, `u` the momentum after the pass, `g` the gradient times the
// gain. Where the residual was empty, what is left of it and the gradient are the same number, and
// one sign would be as wrong as the other; two independent ones add up to the root of the sum of
// their squares.
constexpr DgcGuess guess_next(float rest, float u, float g, bool was_empty, bool has_residual,
                              bool has_momentum, const DgcRule& rule) {
  float idle_u = u;
  const float idle = dgc_increment(0, has_momentum ? &idle_u : nullptr, rule);
  const float step = dgc_increment(g, has_momentum ? &u : nullptr, rule) - idle;
  const float base = (has_residual ? rest : 0) + idle;
  if (was_empty) return {base * base + step * step, true};
  const uint32_t key = std::bit_cast<uint32_t>(rest) ^ fmix32(std::bit_cast<uint32_t>(g));
  return {base + ((fmix32(key) & 1u) != 0 ? -step : step), false};
}

// A guess of NaN is none.
constexpr MagnitudeBits guess_bits(float guess) {
  const MagnitudeBits bits = magnitude_bits(guess);
  return bits < kInfinityBits ? bits : kInfinityBits;
}

}  // namespace zen
