// The quicker way to merge, for processors with PEXT: in the space of each word's union.
//
// The union of a word's masks over the ranks says how many sums the word has, and PEXT of a rank's
// mask by the union which of them that rank adds to. A word with up to eight sums, however far
// apart its elements lie, is then one vector for each rank and is written where it belongs: nothing
// is scattered, nothing gathered, and no branch depends on which elements there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/dtype.h"
#include "core/merge_kernels.h"

namespace zen {

// The masks of a block's slots, 0 where nothing is listed.
struct alignas(32) MaskRow {
  uint64_t masks[kBlockSlots];
};

// A rank that lists something in the block at hand.
struct ActiveRank {
  RankStream* stream = nullptr;
  const std::byte* begin = nullptr;   // of its values in the block; whole vectors may be read
  const std::byte* values = nullptr;  // of the next slot
};

// A block of kBlockSlots slots under construction, for at most as many ranks as it was made for.
struct UnionBlock {
  explicit UnionBlock(size_t ranks) : active(ranks), rows(ranks), near_end(ranks) {}

  uint64_t index = 0;              // of the block, in presence words
  uint64_t listed = 0;             // slots that some rank lists
  std::vector<ActiveRank> active;  // in rank order, and their number
  size_t active_count = 0;
  std::vector<MaskRow> rows;  // of the active ranks
  MaskRow unions;
  // Copies of values that lie too near the end of their message for whole vectors.
  std::vector<std::vector<std::byte>> near_end;
  // The sums of all listed elements in order, followed by room for the rest of 64.
  alignas(64) float packed[kBlockSlots * kWordElems + kWordElems];
};

// Adds up the block of `count` ranks, whose values have one dtype; index and listed are set.
// Appends the masks, leaves the sums in block.packed, advances the ranks and returns the number of
// sums.
using SumBlock = uint64_t (*)(RankStream* ranks, size_t count, UnionBlock& block, MaskStream& out);

SumBlock sum_block_avx2(DType dtype);  // REQUIRES: supported(Isa::avx2)

}  // namespace zen
