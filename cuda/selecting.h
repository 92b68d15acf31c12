// A selection that is being made, and the lists that its counts are scanned in.
#pragma once

#include <memory>
#include <vector>

#include "core/selection.h"
#include "cuda/scan.h"
#include "cuda/select.h"
#include "cuda/slot_table.h"

namespace zen::cuda {

// Rooms, and what kernels know of them.
struct Selecting {
  Selection selection;
  std::vector<SelectJob> on_host;
  const SelectJob* jobs = nullptr;  // device memory
  unsigned count = 0;
  uint64_t tiles = 0;  // of the largest shard
  std::vector<ScanList> scans;
};

// The counts of a selection, in the order of Count.
inline void set_counts(ShardSelection& selection, const uint64_t* totals) {
  selection.count = totals[kValues];
  selection.present_words = totals[kPresent];
  selection.full_words = totals[kFull];
  auto block_elements = std::make_shared<uint64_t>(totals[kBlockElements]);
  selection.presence = {reinterpret_cast<std::byte*>(block_elements.get()), sizeof(uint64_t),
                        block_elements};
}

// Scans of a table's four counts; the totals go to totals[0, kCounts), if not null.
inline void add_scans(std::vector<ScanList>& lists, const SlotTable& table, uint64_t* totals) {
  for (int which = 0; which < kCounts; ++which)
    lists.push_back(
        {table.count(which), table.tiles(), totals == nullptr ? nullptr : totals + which});
}

}  // namespace zen::cuda
