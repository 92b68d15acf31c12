// Packed values come back bit for bit, take the promised room, are the same bytes from every
// kernel, and cannot harm their reader.
#include "core/value_packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <sstream>
#include <vector>

#include "core/error.h"
#include "core/value_packing_chunk.h"

namespace zen {
namespace {

using Bytes = std::vector<std::byte>;

const DType kDTypes[] = {DType::f32, DType::f16, DType::bf16};
const size_t kCounts[] = {0,   1,    63,   64,   65,   127,  128,  255,
                          257, 1009, 4095, 4096, 4097, 4160, 8191, 20011};

// Bit patterns of one value after another, of whatever width the dtype has.
using Pattern = std::function<uint32_t(std::mt19937&, DType, size_t elem)>;

uint32_t bits_of(DType dtype, float x) {
  return with_type(dtype, [&](auto type) -> uint32_t {
    const auto value = from_float<decltype(type)>(x);
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(value));
    return bits;
  });
}

uint32_t with_exponent(DType dtype, uint32_t exponent, uint32_t noise) {
  const packing::Split split = packing::split_of(dtype);
  const uint32_t mask = split.exponent_mask() << split.mantissa_bits;
  return (noise & ~mask) | (exponent << split.mantissa_bits & mask);
}

struct Named {
  const char* name;
  Pattern pattern;
};

std::vector<Named> patterns() {
  const auto normal = [](std::mt19937& random) {
    return std::normal_distribution<float>()(random);
  };
  return {
      {"normal", [=](auto& random, DType dtype, size_t) { return bits_of(dtype, normal(random)); }},
      {"layers",
       [=](auto& random, DType dtype, size_t elem) {
         return bits_of(dtype, normal(random) * std::pow(0.1f, float(elem / 512 % 4)));
       }},
      {"large ones",
       [=](auto& random, DType dtype, size_t) {
         return bits_of(dtype, (random() & 1 ? 1.f : -1.f) * (2 + std::abs(normal(random))));
       }},
      {"zeros", [](auto&, DType, size_t) { return 0u; }},
      {"constant", [](auto&, DType dtype, size_t) { return bits_of(dtype, -1.5f); }},
      {"any bits", [](auto& random, DType, size_t) { return uint32_t(random()); }},
      {"specials",
       [](auto& random, DType dtype, size_t) {
         // Zeros, subnormals, infinities, quiet and signalling NaN with payloads, both signs.
         return with_exponent(dtype, random() & 1 ? 0 : ~0u,
                              random() & 2 ? random() : random() & 1);
       }},
      {"rare outliers",
       [=](auto& random, DType dtype, size_t) {
         return random() % 50 ? bits_of(dtype, normal(random)) : uint32_t(random());
       }},
      {"descending", [](auto& random, DType dtype,
                        size_t elem) { return with_exponent(dtype, ~uint32_t(elem), random()); }},
      {"good sample, bad rest",
       [](auto& random, DType dtype, size_t elem) {
         return elem / 64 % 8 == 0 ? bits_of(dtype, 1.f) : with_exponent(dtype, random(), random());
       }},
  };
}

Bytes make_values(DType dtype, size_t count, const Pattern& pattern) {
  std::mt19937 random(static_cast<uint32_t>(count));
  Bytes values(count * size_of(dtype));
  for (size_t elem = 0; elem < count; ++elem) {
    const uint32_t bits = pattern(random, dtype, elem);
    std::memcpy(values.data() + elem * size_of(dtype), &bits, size_of(dtype));
  }
  return values;
}

std::vector<Isa> isas() {
  std::vector<Isa> result{Isa::scalar};
  if (supported(Isa::avx2)) result.push_back(Isa::avx2);
  return result;
}

Bytes pack(DType dtype, const Bytes& values, Isa isa) {
  const size_t count = values.size() / size_of(dtype);
  const size_t most = max_packed_bytes(dtype, count);
  const std::byte guard{0xa5};
  Bytes out(most + 1, guard);
  const size_t bytes = pack_values(dtype, values.data(), count, out.data(), isa);
  EXPECT_LE(bytes, most);
  EXPECT_EQ(out[most], guard);
  out.resize(bytes);
  return out;
}

// From and to memory of exactly the right size, so that an address sanitizer sees every byte too
// far.
Bytes unpack(DType dtype, const Bytes& packed, size_t count, Isa isa) {
  const auto in = std::make_unique<std::byte[]>(packed.size());
  std::copy(packed.begin(), packed.end(), in.get());
  const std::byte guard{0xa5};
  Bytes out(count * size_of(dtype) + 1, guard);
  const auto check_guard = [&] { EXPECT_EQ(out.back(), guard); };
  try {
    unpack_values(dtype, {in.get(), packed.size()}, count, out.data(), isa);
  } catch (...) {
    check_guard();
    throw;
  }
  check_guard();
  out.pop_back();
  return out;
}

template <class F>
void for_all_values(F&& f) {
  for (const DType dtype : kDTypes)
    for (const size_t count : kCounts)
      for (const Named& named : patterns()) {
        SCOPED_TRACE(testing::Message() << name_of(dtype) << ", " << count << " " << named.name);
        f(dtype, make_values(dtype, count, named.pattern), count);
      }
}

TEST(ValuePacking, returns_every_bit) {
  for_all_values([](DType dtype, const Bytes& values, size_t count) {
    for (const Isa isa : isas())
      ASSERT_EQ(unpack(dtype, pack(dtype, values, isa), count, isa), values) << name_of(isa);
  });
}

TEST(ValuePacking, returns_every_16_bit_pattern) {
  Bytes values(65536 * 2);
  for (uint32_t bits = 0; bits < 65536; ++bits) std::memcpy(values.data() + 2 * bits, &bits, 2);
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const Isa isa : isas())
      EXPECT_EQ(unpack(dtype, pack(dtype, values, isa), 65536, isa), values) << name_of(dtype);
}

TEST(ValuePacking, all_kernels_make_the_same_bytes) {
  for_all_values([](DType dtype, const Bytes& values, size_t count) {
    const Bytes expected = pack(dtype, values, Isa::scalar);
    for (const Isa isa : isas()) {
      ASSERT_EQ(pack(dtype, values, isa), expected) << name_of(isa);
      ASSERT_EQ(unpack(dtype, expected, count, isa), values) << name_of(isa);
    }
  });
}

TEST(ValuePacking, never_costs_one_percent) {
  for_all_values([](DType dtype, const Bytes& values, size_t count) {
    const size_t bytes = pack(dtype, values, preferred_isa()).size();
    const size_t chunks = (count / 64 + 63) / 64;
    EXPECT_LE(bytes, values.size() + 8 * chunks);
    if (count >= 1000) {
      EXPECT_LE(bytes, values.size() * 101 / 100);
    }
  });
}

double entropy(const std::vector<size_t>& counts) {
  double total = 0, bits = 0;
  for (const size_t count : counts) total += double(count);
  for (const size_t count : counts)
    if (count) bits -= double(count) / total * std::log2(double(count) / total);
  return bits;
}

// Bits per value of sign, mantissa, and exponent given the largest one of the block, whose own
// entropy is shared by 64 values.
double entropy_per_value(DType dtype, const Bytes& values) {
  const packing::Split split = packing::split_of(dtype);
  std::vector<size_t> deltas(256), largests(256);
  for (size_t block = 0; block < values.size() / size_of(dtype) / 64; ++block) {
    uint32_t exponents[64], largest = 0;
    for (size_t elem = 0; elem < 64; ++elem) {
      uint32_t bits = 0;
      std::memcpy(&bits, values.data() + (64 * block + elem) * size_of(dtype), size_of(dtype));
      exponents[elem] = bits >> split.mantissa_bits & split.exponent_mask();
      largest = std::max(largest, exponents[elem]);
    }
    for (const uint32_t exponent : exponents) ++deltas[largest - exponent];
    ++largests[largest];
  }
  return split.mantissa_bits + 1 + entropy(deltas) + entropy(largests) / 64;
}

// Exponents that nearly all agree cost a bit and an eighth, however little they say; those of
// normally distributed values come close to their entropy.
TEST(ValuePacking, comes_within_three_percent_of_the_entropy) {
  const size_t count = 1 << 18;
  for (const DType dtype : kDTypes)
    for (const Named& named : patterns()) {
      const std::string name = named.name;
      if (name != "normal" && name != "layers") continue;
      const Bytes values = make_values(dtype, count, named.pattern);
      const double bits = 8.0 * double(pack(dtype, values, preferred_isa()).size()) / double(count);
      EXPECT_LE(bits, 1.03 * entropy_per_value(dtype, values)) << name_of(dtype) << " " << name;
    }
}

// Either the values are decoded or the bytes are rejected; reading too far is for sanitizers to
// find.
void unpack_or_reject(DType dtype, const Bytes& packed, size_t count) {
  std::vector<Bytes> results;
  for (const Isa isa : isas()) {
    try {
      results.push_back(unpack(dtype, packed, count, isa));
    } catch (const MalformedMessage&) {
      results.emplace_back();
    }
    ASSERT_EQ(results.front(), results.back()) << name_of(isa);
  }
}

TEST(ValuePacking, rejects_every_truncation_and_extension) {
  for (const DType dtype : kDTypes) {
    const size_t count = 64 * 9 + 5;
    Bytes packed = pack(dtype, make_values(dtype, count, patterns()[7].pattern), preferred_isa());
    packed.push_back(std::byte{0});
    EXPECT_THROW(unpack(dtype, packed, count, preferred_isa()), MalformedMessage);
    packed.pop_back();
    while (!packed.empty()) {
      packed.pop_back();
      for (const Isa isa : isas())
        ASSERT_THROW(unpack(dtype, packed, count, isa), MalformedMessage) << packed.size();
    }
  }
}

TEST(ValuePacking, survives_every_flipped_bit) {
  for (const DType dtype : kDTypes)
    for (const size_t pattern : {0, 2, 7}) {
      const size_t count = 64 * 3 + 1;
      const Bytes good =
          pack(dtype, make_values(dtype, count, patterns()[pattern].pattern), preferred_isa());
      for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
        Bytes bad = good;
        bad[bit / 8] ^= std::byte(1 << bit % 8);
        unpack_or_reject(dtype, bad, count);
      }
    }
}

// A table that is consistent in itself, over bodies of noise: the planes contradict it.
TEST(ValuePacking, survives_noise_behind_a_valid_table) {
  std::mt19937 random(3);
  for (const DType dtype : kDTypes)
    for (int round = 0; round < 300; ++round) {
      const size_t blocks = 1 + random() % packing::kChunkBlocks, code = random() % 5;
      packing::Past past;
      uint32_t most = static_cast<uint32_t>(blocks * 64);
      for (uint16_t& count : past) most = count = static_cast<uint16_t>(random() % (most + 1));
      const packing::BodyLayout at(dtype, packing::kCodes[code], blocks, past);
      Bytes packed(packing::kEntryBytes + at.bytes);
      for (std::byte& byte : packed) byte = std::byte(round % 3 ? random() : 0xff);
      std::memcpy(packed.data(), past.data(), 6);
      packed[6] = std::byte(code), packed[7] = std::byte{0};
      unpack_or_reject(dtype, packed, blocks * 64);
    }
}

TEST(ValuePacking, names_what_is_wrong_with_a_table) {
  const auto reason = [](size_t at, std::byte byte) -> std::string {
    Bytes packed =
        pack(DType::bf16, make_values(DType::bf16, 64, patterns()[0].pattern), preferred_isa());
    packed[at] = byte;
    try {
      check_packed(DType::bf16, packed, 64);
    } catch (const MalformedMessage& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(reason(6, std::byte{9}), "packed values: chunk 0 has the unknown code 9");
  EXPECT_EQ(reason(7, std::byte{1}), "packed values: chunk 0 has 1 where 0 is reserved");
  EXPECT_NE(reason(1, std::byte{1}).find("of 64 values"), std::string::npos);
  EXPECT_NE(reason(0, std::byte{60}).find("with this table need"), std::string::npos);
}

// docs/value-packing.md ends with one packed block in hexadecimal, of the values it describes.
TEST(ValuePacking, worked_example_of_the_documentation_is_true) {
  std::ifstream page(ZENSYNC_SOURCE_DIR "/docs/value-packing.md");
  ASSERT_TRUE(page);
  Bytes packed;
  bool example = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("```")) {
      example = line == "```hex";
      continue;
    }
    std::istringstream bytes(line.substr(0, line.find('#')));
    for (std::string byte; example && bytes >> byte;)
      packed.push_back(std::byte(std::stoi(byte, nullptr, 16)));
  }
  Bytes values;
  for (int elem = 0; elem < 65; ++elem) {
    const float x = elem == 9 ? 0.f : (elem % 2 ? -1.f : 1.f) * (1 + float(elem % 4)) * 0.5f;
    const bf16 value = from_float<bf16>(x);
    values.insert(values.end(), {std::byte(value.bits), std::byte(value.bits >> 8)});
  }
  EXPECT_EQ(unpack(DType::bf16, packed, 65, Isa::scalar), values);
  EXPECT_EQ(pack(DType::bf16, values, Isa::scalar), packed);
}

}  // namespace
}  // namespace zen
