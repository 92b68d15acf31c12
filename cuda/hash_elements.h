// Algorithm 1 of the ZEN paper on a GPU (core/hierarchical_hash.h has it in plain C++, and says
// where it differs from the paper's text), and the masks of an owner's list I_j that Algorithm 2's
// hash bitmap is made of.
//
// A thread takes an index: h0 picks the partition, h1 to hk a slot of its parallel memory, claimed
// by compare-and-swap; when all are taken, an atomic counter gives it a place in the serial memory.
// Which slot an index gets depends on the order of the threads. What comes out does not: the memory
// becomes one bit an element again, and masks are in the order of I_j.
//
// Expected bytes for nnz indices among E elements, with x = n * (r1 + r2) slots, about 3 * nnz:
//   list    E / 8 and E / 8 of offsets read, 4 * nnz written
//   insert  4 * nnz read, 4 * x cleared, about 1.5 atomic operations an index at scattered places
//   note    4 * x read, nnz atomic operations on E / 8 bytes
//   mark    4 * E of the lists and E / 8 scattered read, E / 8 written
#pragma once

#include <cstdint>

#include "cuda/portable.h"
#include "cuda/select.h"

namespace zen::cuda {

constexpr int kMaxHashes = 8;

struct HashJob {
  const uint32_t* indices = nullptr;
  uint64_t count = 0;
  uint32_t partitions = 1, h0_seed = 0;
  uint32_t seeds[kMaxHashes] = {};  // of h1 ... hk
  int hashes = 0;                   // k
  uint64_t r1 = 0, r2 = 0;
  uint32_t* memory = nullptr;    // x: a row of r1 + r2 slots for each partition; 0 or index + 1
  uint64_t* appended = nullptr;  // c - r1 of each partition, counting on when r2 is used up
  uint64_t* listed = nullptr;    // a bit for each element from `first_element` on
  uint64_t first_element = 0;
};

// The listed elements of one table whose slots are consecutive words, ascending. REQUIRES: its
// counts have been scanned.
void hash_list(const SelectJob& job, uint32_t* indices, cudaStream_t stream);

// Lines 2 to 17. REQUIRES: memory and `appended` are cleared. An index that finds the serial memory
// full is dropped: the host sees it by `appended` and calls again with a larger one.
void hash_insert(const HashJob& job, cudaStream_t stream);

// Sets the bits of what the memory holds. REQUIRES: `listed` is cleared.
void hash_note(const HashJob& job, cudaStream_t stream);

// Fills masks and counts (not yet scanned) of the owners' lists from the bits.
void hash_mark(const uint64_t* listed, uint64_t first_element, const SelectJob* jobs,
               unsigned count, uint64_t most_tiles, cudaStream_t stream);

}  // namespace zen::cuda
