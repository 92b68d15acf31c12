// Encoding `dense`: every element of the shard, in slot then element order, and no index.

#include "core/bits.h"
#include "core/format.h"
#include "core/full_masks.h"
#include "core/spread.h"

namespace zen {

namespace {

Plan plan(const ShardSelection& selection) {
  return {selection.shard.elements, selection.shard.slots, 0, 0};
}

uint64_t max_bytes(const Shard& shard, DType dtype) {
  return shard.elements * size_of(dtype);
}

void write_values(const ShardSelection& selection, std::byte* out) {
  ValueSpreader spreader(selection, out);
  for (uint64_t slot = 0; slot < selection.shard.slots; ++slot) spreader.next_slot();
}

NormalForm read_index(const IndexView& index) {
  const Shard& shard = index.shard;
  check_field("flags", index.header.flags, 0);
  check_field("present_words", index.header.present_words, shard.slots);
  check_field("count", index.header.count, shard.elements);
  check_field("index_bytes", index.header.index_bytes, 0);
  NormalForm normal;
  normal.presence = index.allocate(shard.presence_words() * 8);
  fill_bits(words_of(normal.presence), shard.slots);
  normal.masks = full_masks(index, words_of(normal.presence));
  return normal;
}

}  // namespace

const Format kDenseFormat{Encoding::dense, plan, max_bytes, write_values, nullptr, read_index};

}  // namespace zen
