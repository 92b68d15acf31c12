// Finding the listed elements of a gradient, in two passes: masks and counts of every tile first;
// then, when the counts have been scanned, the values.
//
// Expected bytes, all owners together, for N elements of b bytes of which nnz are listed in p
// words:
//   mark    N * b read, N / 8 written
//   gather  N / 8 read, p * 64 * b read at most (32-byte sectors with a listed element), nnz * b
//   and
//           N / 8 written
// So a sparse gradient is read once and little else is moved.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "cuda/portable.h"
#include "cuda/slot_table.h"

namespace zen::cuda {

struct SelectJob {
  ShardMap map;
  SlotTable table;
  std::byte* values = nullptr;  // room for every element of the shard
  bool takes = false;           // gathering leaves zeros in the gradient
};

// Fills masks and counts (not yet scanned), and rewrites -0.0 to +0.0 in the gradient.
void select_mark(DType dtype, std::byte* gradient, const SelectJob* jobs, unsigned count,
                 uint64_t most_tiles, cudaStream_t stream);

// Fills offsets and values. REQUIRES: the counts have been scanned.
void select_gather(DType dtype, std::byte* gradient, const SelectJob* jobs, unsigned count,
                   uint64_t most_tiles, cudaStream_t stream);

}  // namespace zen::cuda
