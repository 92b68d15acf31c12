// Writing messages, one for each job, to the bytes that csrc/core's encode() would write.
//
// The host has read the counts, chosen the encoding and made the header; nothing here waits for it.
// Bits that several threads put into one word are added with atomic or: their order does not
// matter.
//
// Expected bytes for a shard of S slots with nnz listed elements of b bytes:
//   envelope  the index once, written (cleared)
//   values    nnz * b read, all elements * b written: `dense` and `blocks` only
//   index     16 * S read; the index written, for `positions` by 2 to 3 atomic operations a value
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/elias_fano.h"
#include "core/message.h"
#include "cuda/portable.h"
#include "cuda/slot_table.h"

namespace zen::cuda {

struct EncodeJob {
  ShardMap map;
  SlotTable table;
  const std::byte* values = nullptr;  // the listed elements
  std::byte* message = nullptr;
  std::byte header[kHeaderBytes] = {};
  uint64_t value_bytes = 0, index_offset = 0, index_words = 0;
  Encoding encoding = Encoding::dense;
  uint8_t flags = 0;
  EliasFano list{0, 0};  // the numbers that `positions` or `words` list

  constexpr bool spreads() const {
    return encoding == Encoding::dense || encoding == Encoding::blocks;
  }
};

// Header, padding behind the values and a cleared index.
void encode_envelopes(const EncodeJob* jobs, unsigned count, uint64_t most_tiles,
                      cudaStream_t stream);

// The values of jobs that send unlisted zeros; the others have theirs in place.
void encode_spread_values(DType dtype, const EncodeJob* jobs, unsigned count, uint64_t most_tiles,
                          cudaStream_t stream);

// REQUIRES: encode_envelopes() on the same stream before.
void encode_indices(const EncodeJob* jobs, unsigned count, uint64_t most_tiles,
                    cudaStream_t stream);

}  // namespace zen::cuda
