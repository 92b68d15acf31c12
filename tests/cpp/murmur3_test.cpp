#include "core/murmur3.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace zen {
namespace {

struct Golden {
  uint32_t seed;
  uint64_t key;
  uint32_t hash;
};

// Golden values: mmh3.hash(key.to_bytes(4 or 8, "little"), seed, signed=False), mmh3 5.3.1.
TEST(Murmur3, four_byte_keys_match_mmh3) {
  constexpr Golden kGolden[] = {
      {0x00000000u, 0x00000000u, 0x2362f9deu}, {0x00000000u, 0x00000001u, 0xfbf1402au},
      {0x00000000u, 0x12345678u, 0xec3dcb62u}, {0x00000000u, 0x80000000u, 0x9994d794u},
      {0x00000000u, 0xffffffffu, 0x76293b50u}, {0x00000001u, 0x00000000u, 0x78ed212du},
      {0x00000001u, 0x00000001u, 0x5e11e574u}, {0x00000001u, 0x12345678u, 0xc5eedad0u},
      {0x9747b28cu, 0x00000000u, 0xa366817du}, {0x9747b28cu, 0x12345678u, 0x461a9426u},
      {0x9747b28cu, 0xffffffffu, 0x9de672fbu}, {0xffffffffu, 0x00000000u, 0x2fb4abf3u},
      {0xffffffffu, 0x80000000u, 0x7ad0f8d0u}, {0xffffffffu, 0xffffffffu, 0xa5fe21d3u},
  };
  for (const auto& [seed, key, hash] : kGolden)
    EXPECT_EQ(murmur3_x86_32(static_cast<uint32_t>(key), seed), hash)
        << "key " << key << ", seed " << seed;
}

TEST(Murmur3, eight_byte_keys_match_mmh3) {
  constexpr Golden kGolden[] = {
      {0x00000000u, 0x0000000000000000u, 0x63852afcu},
      {0x00000000u, 0x0000000000000001u, 0x53075d44u},
      {0x00000000u, 0x123456789abcdef0u, 0x4a508d59u},
      {0x00000000u, 0x0000000100000000u, 0x3ad85688u},
      {0x00000000u, 0xffffffffffffffffu, 0x627564e8u},
      {0x00000001u, 0x0000000100000000u, 0xf4dfb93au},
      {0x9747b28cu, 0x123456789abcdef0u, 0xb67794a5u},
      {0xffffffffu, 0x0000000000000001u, 0x6a1d87e6u},
      {0xffffffffu, 0xffffffffffffffffu, 0xc6fd26e5u},
  };
  for (const auto& [seed, key, hash] : kGolden)
    EXPECT_EQ(murmur3_x86_32(key, seed), hash) << "key " << key << ", seed " << seed;
}

// digest = digest * 31 + hash over 100,000 keys, seed = number of the key; computed with mmh3.
TEST(Murmur3, many_keys_match_mmh3) {
  uint32_t digest32 = 0, digest64 = 0;
  for (uint32_t number = 0; number < 100'000; ++number) {
    digest32 = digest32 * 31 + murmur3_x86_32(number * 2654435761u, number);
    digest64 = digest64 * 31 + murmur3_x86_32(number * uint64_t{0x9e3779b97f4a7c15u}, number);
  }
  EXPECT_EQ(digest32, 0x47a6dcb4u);
  EXPECT_EQ(digest64, 0x042e2718u);
}

}  // namespace
}  // namespace zen
