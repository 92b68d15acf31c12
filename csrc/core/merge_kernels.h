// What merge() asks of an instruction set: the interface of merge_loop.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/placement.h"
#include "core/words_scalar.h"

namespace zen {

constexpr int kBlockSlots = 64;  // one presence word

// How far one rank's message has been read.
struct RankStream {
  const uint64_t* presence = nullptr;
  const uint64_t* masks = nullptr;
  const uint64_t* masks_end = nullptr;
  const std::byte* values = nullptr;
  const std::byte* end = nullptr;  // of the memory that may be read
};

// The sums of 64 slots under construction. Between blocks every mask is 0 and every sum is -0.0,
// the number that changes no other when it is added.
struct MergeBlock {
  MergeBlock() { std::fill_n(sums[0], kBlockSlots * kWordElems, -0.0f); }

  uint64_t index = 0;   // of the block, in presence words
  uint64_t listed = 0;  // slots that some rank lists
  uint64_t summed = 0;  // slots whose values are added up in `sums`: all that several ranks list
  uint64_t masks[kBlockSlots] = {};
  const std::byte* lone[kBlockSlots];  // values of a slot that is not in `summed`
  alignas(64) float sums[kBlockSlots][kWordElems];
  // The result in order, followed by room for a vector.
  alignas(64) float packed[kBlockSlots * kWordElems + kOvershootBytes / sizeof(float)];
};

// Where the masks of the result go.
struct MaskStream {
  uint64_t* masks = nullptr;
  uint64_t full_words = 0;  // those of kWordElems elements
};

// Adds one rank's part of the block, whose index, listed and summed are set, and advances the rank.
using AddRank = void (*)(RankStream& rank, MergeBlock& block);
// Appends the masks, leaves the sums of all listed elements in block.packed and returns their
// number. The dtype is that of the lone values.
using PackBlock = uint64_t (*)(MergeBlock& block, MaskStream& out);
// Divides, rounds and appends; returns the new end.
using DivideBlock = std::byte* (*)(const float* sums, uint64_t count, float divisor,
                                   std::byte* out);

struct MergeKernels {
  AddRank add;
  PackBlock pack;
  DivideBlock divide;
};

MergeKernels merge_kernels_scalar(DType dtype);
MergeKernels merge_kernels_avx2(DType dtype);  // REQUIRES: supported(Isa::avx2)

}  // namespace zen
