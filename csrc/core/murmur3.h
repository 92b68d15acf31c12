// MurmurHash3_x86_32, Austin Appleby's public-domain hash, of one 32- or 64-bit key taken as its
// little-endian bytes. The paper uses MurmurHash 2.0; version 3 is its author's successor and
// shares its finaliser with the hashed Placement.
#pragma once

#include <bit>
#include <cstdint>

#include "core/hash.h"

namespace zen {

constexpr uint32_t murmur3_block(uint32_t hash, uint32_t block) {
  block = std::rotl(block * 0xcc9e2d51u, 15) * 0x1b873593u;
  return std::rotl(hash ^ block, 13) * 5u + 0xe6546b64u;
}

constexpr uint32_t murmur3_x86_32(uint32_t key, uint32_t seed) {
  return fmix32(murmur3_block(seed, key) ^ 4u);  // 4 and 8 are the key's length in bytes
}

constexpr uint32_t murmur3_x86_32(uint64_t key, uint32_t seed) {
  const uint32_t low = murmur3_block(seed, static_cast<uint32_t>(key));
  return fmix32(murmur3_block(low, static_cast<uint32_t>(key >> 32)) ^ 8u);
}

}  // namespace zen
