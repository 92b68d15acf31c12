// What a Selection of a CudaDevice holds where the host's has presence bits and masks: see the top
// of cuda_device.h.
#pragma once

#include "core/bits.h"
#include "core/format.h"
#include "core/selection.h"
#include "cuda/slot_table.h"

namespace zen::cuda {

inline SlotTable table_of(const ShardSelection& selection) {
  return SlotTable::at(selection.masks.data, selection.shard.slots);
}

inline uint64_t block_elements_of(const ShardSelection& selection) {
  return *reinterpret_cast<const uint64_t*>(selection.presence.data);
}

// core's plan goes by counts alone, but for `blocks`, whose count was taken on the device.
inline Plan plan_of(const ShardSelection& selection, const Format& format) {
  if (format.encoding != Encoding::blocks) return format.plan(selection);
  const uint64_t elements = block_elements_of(selection);
  return {elements, (elements + kWordElems - 1) / kWordElems,
          8 * words_for_bits((selection.shard.slots + 3) / 4), 0};
}

inline EliasFano list_of(const ShardSelection& selection, Encoding encoding) {
  if (encoding == Encoding::positions) return {selection.count, selection.shard.elements};
  return {selection.present_words, selection.shard.slots};
}

}  // namespace zen::cuda
