// Packing values without loss, to the bytes of csrc/core's pack_values(): how long the chunks of a
// message become, and when the host has decided that it is worth it, the chunks.
//
// Expected bytes for nnz values of b bytes packed into P bytes:
//   measure  nnz * b read (an eighth of it twice), 16 written for each chunk of 4096 values
//   write    nnz * b read twice, the second time from the cache, and P written
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "cuda/packing_tables.h"
#include "cuda/portable.h"

namespace zen::cuda {

struct PackJob {
  const std::byte* values = nullptr;  // aligned to 8
  ChunkCounts count{0};
  uint64_t* entries = nullptr;  // of the chunks, as they stand in the message
  uint64_t* bodies = nullptr;   // bytes of the chunks; a word more than there are chunks
  std::byte* out = nullptr;     // of pack_write(), aligned to 8; null: this job is left out
};

// Fills entries and bodies (not yet scanned). `tables` is device memory.
void pack_measure(DType dtype, const CodeTables* tables, const PackJob* jobs, unsigned count,
                  uint64_t most_chunks, cudaStream_t stream);

// Writes everything that stands in a message for its packed values. REQUIRES: bodies are scanned.
void pack_write(DType dtype, const CodeTables* tables, const PackJob* jobs, unsigned count,
                uint64_t most_chunks, cudaStream_t stream);

}  // namespace zen::cuda
