// Exclusive prefix sums of many short lists. The long way from elements to tiles has been gone
// already (reduce), so one block a list is enough (scan) and nobody waits for another block.
#pragma once

#include <cstdint>

#include "cuda/portable.h"

namespace zen::cuda {

struct ScanList {
  uint64_t* data = nullptr;  // length + 1 words; the last one becomes the total
  uint64_t length = 0;
  uint64_t* total = nullptr;  // gets the total, too, if not null
};

// Scans lists[0, count) in place; `lists` is device memory. Expected bytes: 16 per entry.
void scan(const ScanList* lists, unsigned count, cudaStream_t stream);

}  // namespace zen::cuda
