// Encoding `coo`: the position of every listed element as a plain number, as most sparse
// synchronisation schemes send it. Kept as a baseline; `positions` says the same in fewer bytes.
//
//   index := position{count} zero{0 or 4}
//   position := 4 bytes if the shard has at most 2^32 elements, otherwise 8 bytes; ascending

#include <cstring>

#include "core/format.h"
#include "core/positions.h"

namespace zen {

namespace {

uint64_t position_bytes(const Shard& shard) {
  return shard.elements <= uint64_t{1} << 32 ? 4 : 8;
}

uint64_t index_bytes(const Shard& shard, uint64_t count) {
  return round_up_8(count * position_bytes(shard));
}

Plan plan(const ShardSelection& selection) {
  return {selection.count, selection.present_words, index_bytes(selection.shard, selection.count),
          0};
}

uint64_t max_bytes(const Shard& shard, DType dtype) {
  return round_up_8(shard.elements * size_of(dtype)) + index_bytes(shard, shard.elements);
}

template <class Position>
void write_positions(const ShardSelection& selection, std::byte* out) {
  for_each_position(selection, [&](uint64_t position) {
    const auto narrow = static_cast<Position>(position);
    std::memcpy(out, &narrow, sizeof narrow);
    out += sizeof narrow;
  });
}

void write_index(const ShardSelection& selection, const Plan& plan, uint64_t* out) {
  if (plan.index_bytes == 0) return;
  out[plan.index_bytes / 8 - 1] = 0;
  auto* bytes = reinterpret_cast<std::byte*>(out);
  if (position_bytes(selection.shard) == 4)
    write_positions<uint32_t>(selection, bytes);
  else
    write_positions<uint64_t>(selection, bytes);
}

template <class Position>
NormalForm read_positions(const IndexView& index) {
  const auto* bytes = reinterpret_cast<const std::byte*>(index.words.data());
  return collect_positions(index, [&](auto&& push) {
    for (uint64_t at = 0; at < index.header.count; ++at) {
      Position position;
      std::memcpy(&position, bytes + at * sizeof position, sizeof position);
      push(position);
    }
  });
}

NormalForm read_index(const IndexView& index) {
  const uint64_t count = index.header.count;
  check_field("flags", index.header.flags, 0);
  check_field("index_bytes", index.header.index_bytes, index_bytes(index.shard, count));
  if (position_bytes(index.shard) == 8) return read_positions<uint64_t>(index);
  if (count % 2 != 0) check_field("padding of the index", index.words.back() >> 32, 0);
  return read_positions<uint32_t>(index);
}

}  // namespace

const Format kCooFormat{Encoding::coo, plan, max_bytes, nullptr, write_index, read_index};

}  // namespace zen
