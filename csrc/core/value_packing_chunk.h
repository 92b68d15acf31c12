// The parts of the packed format that packer and unpacker, scalar and AVX2, share.
//
//   packed   := entry{chunks} body{chunks} raw{count % 64}
//   entry    := past[0]:u16 past[1]:u16 past[2]:u16 code:u8 zero:u8
//   body     := plane[0]{blocks} fraction{blocks} largest:u8{blocks} plane[1] plane[2]
//               exponent:u8{past[2]} zero{to a multiple of 8}
//             | raw{64 * blocks}                                                  if code is
//             kRawChunk
//
// A chunk is up to 64 blocks of 64 values. A value's delta (block's largest exponent - its
// exponent) has a rank in the chunk's code, and the rank is written in up to three levels of 1 or 2
// bits: a level whose bits are all ones sends the value on to the next level, and from the last one
// to the list of plain exponents. Level 0 has 64 bits per plane and block; the deeper levels hold
// only the values sent on, in order, so their planes are short bit strings that run through the
// whole chunk.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/dtype.h"

namespace zen::packing {

static_assert(std::endian::native == std::endian::little, "planes are little-endian words");

constexpr size_t kBlockValues = 64;  // one bit plane of a block is one machine word
constexpr size_t kChunkBlocks = 64;  // keeps a chunk in the first-level cache and counts in 16 bits
constexpr size_t kChunkValues = kBlockValues * kChunkBlocks;
constexpr size_t kEntryBytes = 8;
constexpr size_t kPlaneRoom =
    kChunkValues / 8 + 8;  // of a deeper level: all values, and a word store
// However wrong a body is, an unpacker that checks its counts at the end reads at most as many
// plain exponents as there are values, or a plane of as many bits, so this far past the body.
constexpr size_t kReadSlack = kChunkValues + 16;
constexpr int kLevels = 3;
constexpr int kRanks = 9;  // most ranks that any code has; higher deltas are always plain exponents
constexpr int kDeltas = 16;  // deltas are clipped to 15: the table of one byte shuffle

// Which rank a delta has, and how many planes each level has. `order[r]` is the delta of rank r.
struct Code {
  std::array<uint8_t, kLevels> width;
  std::array<uint8_t, kRanks> order;

  constexpr int full(int level) const { return (1 << width[level]) - 1; }
  constexpr int ranks() const { return full(0) + full(1) + full(2); }
};

// Chosen per chunk by cost. A block's largest exponent is reached by few of its values, so delta 0
// is often rarer than 1 and 2. The first two suit values of mixed size, the others values that were
// selected for being large.
constexpr std::array<Code, 5> kCodes = {{
    {{2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8}},
    {{2, 2, 2}, {1, 2, 3, 0, 4, 5, 6, 7, 8}},
    {{1, 2, 2}, {1, 0, 2, 3, 4, 5, 6}},
    {{1, 1, 2}, {1, 2, 0, 3, 4}},
    {{1, 1, 2}, {1, 0, 2, 3, 4}},
}};
constexpr uint8_t kRawChunk = 255;

// A code as two tables. `digits[delta]` has the bits of level l at positions 2l and 2l + 1;
// `deltas[rank]` inverts it, a rank being the sum of the levels' digits.
struct CodeTables {
  alignas(16) std::array<uint8_t, kDeltas> digits{};
  alignas(16) std::array<uint8_t, kDeltas> deltas{};
};

constexpr CodeTables tables_of(const Code& code) {
  CodeTables tables;
  for (int delta = 0; delta < kDeltas; ++delta)
    for (int level = 0; level < kLevels; ++level)
      tables.digits[delta] |= static_cast<uint8_t>(code.full(level) << 2 * level);
  int rank = 0;
  uint8_t sent_on = 0;  // the all-ones digits of the levels above
  for (int level = 0; level < kLevels; ++level) {
    for (int digit = 0; digit < code.full(level); ++digit, ++rank) {
      tables.digits[code.order[rank]] = static_cast<uint8_t>(sent_on | digit << 2 * level);
      tables.deltas[rank] = code.order[rank];
    }
    sent_on |= static_cast<uint8_t>(code.full(level) << 2 * level);
  }
  return tables;
}

inline constexpr std::array<CodeTables, kCodes.size()> kTables = [] {
  std::array<CodeTables, kCodes.size()> tables{};
  for (size_t code = 0; code < kCodes.size(); ++code) tables[code] = tables_of(kCodes[code]);
  return tables;
}();

// How a dtype splits into exponent and fraction (mantissa with the sign above it). A block's
// fractions are their low bytes, value by value, and then one plane per bit that is left.
struct Split {
  int mantissa_bits, exponent_bits;

  constexpr uint32_t exponent_mask() const { return (1u << exponent_bits) - 1; }
  constexpr uint32_t mantissa_mask() const { return (1u << mantissa_bits) - 1; }
  constexpr int fraction_bytes() const { return (mantissa_bits + 1) / 8; }
  constexpr int fraction_planes() const { return (mantissa_bits + 1) % 8; }
  constexpr size_t block_bytes() const { return 64 * fraction_bytes() + 8 * fraction_planes(); }
};

constexpr Split split_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return {10, 5};
    case DType::bf16:
      return {7, 8};
    case DType::f32:
      break;
  }
  return {23, 8};
}

// past[l]: how many of the chunk's values level l sends on.
using Past = std::array<uint16_t, kLevels>;

// Offsets of a body's parts. The parts before `level` do not depend on `past`.
struct BodyLayout {
  size_t planes = 0, fractions, largest, level1, level2, exponents, bytes;

  constexpr BodyLayout(DType dtype, const Code& code, size_t blocks, const Past& past)
      : fractions(8 * blocks * code.width[0]),
        largest(fractions + blocks * split_of(dtype).block_bytes()),
        level1(largest + blocks),
        level2(level1 + code.width[1] * plane_bytes(past[0])),
        exponents(level2 + code.width[2] * plane_bytes(past[1])),
        bytes((exponents + past[2] + 7) / 8 * 8) {}

  static constexpr size_t plane_bytes(size_t bits) { return (bits + 7) / 8; }
};

// What pack_blocks() leaves for its caller to append, since its place depends on the counts (or,
// for the largest exponents, since vector stores of the fractions before them run over).
struct Streams {
  Past past;
  uint8_t largest[kChunkBlocks];
  std::byte level[kLevels][2][kPlaneRoom];  // level 0 is unused: it goes straight to the body
  uint8_t exponents[kChunkValues + 8];
};

using DeltaCounts = std::array<uint32_t, kRanks>;  // values with delta 0 to 8

// Every eighth block is enough to choose a code; its exact cost comes out of packing itself.
constexpr size_t kSampleStride = 8;

// Values of the blocks that are counted.
constexpr uint64_t sampled_values(size_t blocks) {
  return (blocks + kSampleStride - 1) / kSampleStride * kBlockValues;
}

// Bits that a code spends on the counted deltas, of which there are `values` in all.
constexpr uint64_t cost_bits(const Code& code, const DeltaCounts& counts, uint64_t values) {
  uint64_t bits = 0, left = values;
  int rank = 0;
  for (int level = 0; level < kLevels; ++level) {
    bits += left * code.width[level];
    for (int digit = 0; digit < code.full(level); ++digit) left -= counts[code.order[rank++]];
  }
  return bits + 8 * left;
}

// The inner loops for one dtype, once in plain C++ and once for AVX2 (which is the plain ones where
// there is no AVX2), with the same results to the bit. `blocks` is 1 to 64.
struct Kernels {
  // Counts the deltas of every `stride`-th block.
  DeltaCounts (*count_deltas)(const std::byte* values, size_t blocks, size_t stride);

  // Writes the planes of level 0 and the fractions to `body`, the rest to `streams`.
  // REQUIRES: `body` has room for the chunk's raw bytes.
  void (*pack_blocks)(size_t code, const std::byte* values, size_t blocks, std::byte* body,
                      Streams& streams);

  // Returns whether the planes send on as many values as `past` says; if not, some of the values
  // are wrong. REQUIRES: `body` is a whole body for `past` and kReadSlack readable bytes follow it.
  bool (*unpack_blocks)(size_t code, const std::byte* body, size_t blocks, const Past& past,
                        std::byte* values);
};

Kernels kernels_scalar(DType dtype);
Kernels kernels_avx2(DType dtype);

}  // namespace zen::packing
