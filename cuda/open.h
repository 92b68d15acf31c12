// Checking messages and reading their indices into slot tables, whatever the encoding.
//
// Everything that csrc/core's open() checks is checked here, and nothing outside a message or its
// tables is touched for any bytes. A bad message is marked; kernels behind it do nothing once any
// of the batch is marked, and the host finds out when it next waits: no step in between waits.
//
// Expected bytes for a message about S slots: its index is read two or three times (positions,
// words) or once, 8 * S cleared, 8 * S written and read for the masks, 8 * S written for offsets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/elias_fano.h"
#include "core/message.h"
#include "cuda/portable.h"
#include "cuda/slot_table.h"

namespace zen::cuda {

// What a header says, once it has been found possible for the shard.
struct Opened {
  Encoding encoding = Encoding::dense;
  uint8_t flags = 0;
  bool packed = false;
  uint64_t count = 0, present = 0, value_bytes = 0;
  const uint64_t* index = nullptr;
  uint64_t index_words = 0;
  EliasFano list{0, 0};                         // of `positions`, or of the slots of `words`
  uint64_t presence_words = 0, flag_words = 0;  // parts of a `words` index
};

// Tables are cleared memory of their sizes.
struct OpenJob {
  const std::byte* message = nullptr;  // aligned to 8
  uint64_t bytes = 0;                  // that may be read
  ShardMap map;
  Identity expected;
  DType dtype = DType::f32;
  SlotTable table;
  uint64_t* presence = nullptr;       // 1 bit a slot
  uint64_t* presence_sums = nullptr;  // by tile of slots
  uint64_t* high_sums = nullptr;      // by tile of the list's high words
  uint64_t* flag_sums = nullptr;      // by tile of flag words
  uint64_t* body_sums = nullptr;      // by chunk of packed values
  std::byte* unpacked = nullptr;      // where packed values go; null: there is no room for any
  uint64_t unpacked_bytes = 0;
  Opened* opened = nullptr;
  uint64_t* bad = nullptr;      // becomes 1 if the message is malformed
  uint64_t* any_bad = nullptr;  // the same for the whole batch

  // REQUIRES: the message is readable, and its values have been unpacked.
  constexpr const std::byte* values() const {
    return opened->packed ? unpacked : message + kHeaderBytes;
  }
  // Tiles of words of the longest bit string that an index of so many slots can have.
  static constexpr uint64_t bit_tiles(uint64_t slots) { return SlotTable::tiles(2 * slots + 1); }
};

// The steps, in order, with those of unpack.h behind the first; the host scans in between: after
// unpack_measure body_sums, after count_bits high_sums and flag_sums, after
// sum_presence presence_sums, after read_masks the table's counts.
void open_headers(const OpenJob* jobs, unsigned count, cudaStream_t stream);
void open_count_bits(const OpenJob* jobs, unsigned count, uint64_t most_bit_tiles,
                     cudaStream_t stream);
void open_numbers(const OpenJob* jobs, unsigned count, uint64_t most_bit_tiles,
                  cudaStream_t stream);
void open_sum_presence(const OpenJob* jobs, unsigned count, uint64_t most_tiles,
                       cudaStream_t stream);
void open_masks(const OpenJob* jobs, unsigned count, uint64_t most_tiles, cudaStream_t stream);
void open_offsets(const OpenJob* jobs, unsigned count, uint64_t most_tiles, cudaStream_t stream);

}  // namespace zen::cuda
