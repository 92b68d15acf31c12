// The hash that spreads words over owners (see Deal in placement.h): MurmurHash3's 32-bit finaliser
// (Appleby, public domain). It is a bijection of 32-bit numbers in which every input bit flips
// every output bit with probability close to one half. All ranks and all devices must compute the
// same values: they are part of the wire contract and tests/cpp/hash_test.cpp pins some.
#pragma once

#include <cstdint>

namespace zen {

constexpr uint32_t fmix32(uint32_t h) {
  h ^= h >> 16;
  h *= 0x85ebca6bu;
  h ^= h >> 13;
  h *= 0xc2b2ae35u;
  h ^= h >> 16;
  return h;
}

// Seeds that differ in one bit would merely swap neighbouring words, so the seed is mixed first.
constexpr uint32_t hash_word(uint32_t word, uint32_t seed) {
  return fmix32(word ^ fmix32(seed));
}

// Maps a hash to [0, owners) without division: the top half of the product. Errs from uniform by
// at most owners / 2^32. REQUIRES: 1 <= owners <= 65535.
constexpr int owner_of_hash(uint32_t hash, int owners) {
  return static_cast<int>(uint64_t{hash} * static_cast<uint64_t>(owners) >> 32);
}

}  // namespace zen
