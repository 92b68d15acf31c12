#include "cuda/scan.h"

#include "cuda/error.h"
#include "cuda/tile.cuh"

namespace zen::cuda {

namespace {

__global__ void __launch_bounds__(kTileSlots) scan_list(const ScanList* lists) {
  ZEN_SHARED(uint64_t, scratch, kWarps);
  const ScanList list = lists[blockIdx.x];
  uint64_t carry = 0;
  for (uint64_t first = 0; first < list.length; first += kTileSlots) {
    const uint64_t at = first + threadIdx.x;
    const Scanned scanned = block_scan(at < list.length ? list.data[at] : 0, scratch);
    if (at < list.length) list.data[at] = carry + scanned.before;
    carry += scanned.total;
  }
  if (threadIdx.x != 0) return;
  list.data[list.length] = carry;
  if (list.total != nullptr) *list.total = carry;
}

}  // namespace

void scan(const ScanList* lists, unsigned count, cudaStream_t stream) {
  if (count == 0) return;
  launch(scan_list, dim3(count), dim3(kTileSlots), 0, stream, lists);
  check_launch("scan_list");
}

}  // namespace zen::cuda
