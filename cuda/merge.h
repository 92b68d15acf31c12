// Adding opened messages: masks are united first; when their counts have been scanned, each listed
// element is added up in the order of the messages, in float32, divided and rounded once.
//
// Expected bytes for n messages of nnz_i values of b bytes about S slots, with a union of u values:
//   unite  n * 8 * S read, 8 * S written
//   add    n * 16 * S and sum(nnz_i) * b read, 8 * S and u * b written
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "cuda/open.h"
#include "cuda/portable.h"

namespace zen::cuda {

struct MergeJob {
  const OpenJob* inputs = nullptr;  // device memory
  unsigned count = 0;
  ShardMap map;
  SlotTable table;
  std::byte* values = nullptr;  // room for every element of the shard
  float divisor = 1;
};

// Fills masks and counts (not yet scanned).
void merge_unite(const MergeJob& job, cudaStream_t stream);

// Fills offsets and values of `dtype`, unless a message is bad. REQUIRES: counts have been scanned.
void merge_add(DType dtype, const MergeJob& job, cudaStream_t stream);

}  // namespace zen::cuda
