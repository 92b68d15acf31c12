#include "core/positions.h"

#include "core/position_kernels.h"

namespace zen {

namespace {

bool use_avx2(Isa isa) {
  return isa == Isa::avx2 && quick_pext();
}

}  // namespace

void reject_position(uint64_t position, uint64_t least, uint64_t elements) {
  throw MalformedMessage("malformed message: position " + std::to_string(position) +
                         ", expected at least " + std::to_string(least) + " and below " +
                         std::to_string(elements));
}

NormalForm room_for_positions(const IndexView& index) {
  const uint64_t groups = index.shard.presence_words();
  NormalForm normal;
  normal.presence = index.allocate(groups * 8);
  normal.masks = index.allocate((index.header.present_words + uint64_t{1}) * 8);
  std::fill_n(words_of(normal.presence), groups, uint64_t{0});
  return normal;
}

NormalForm without_spare_mask(const IndexView& index, NormalForm normal, uint64_t masks) {
  check_field("number of present words", masks, index.header.present_words);
  normal.masks = normal.masks.slice(0, masks * 8);
  return normal;
}

void write_positions(const ShardSelection& selection, const EliasFano& layout, uint64_t* out,
                     Isa isa) {
  if (use_avx2(isa) && writes_slots(layout.low_width()))
    return write_positions_avx2(selection, layout, out);
  EliasFanoWriter writer(layout, out);
  for_each_position(selection, [&](uint64_t position) { writer.push(position); });
  writer.finish();
}

NormalForm read_positions(const IndexView& index, const EliasFano& layout, Isa isa) {
  if (!use_avx2(isa) || !reads_slots(layout.low_width()))
    return collect_positions(index,
                             [&](auto&& push) { for_each_number(layout, index.words, push); });
  NormalForm normal = room_for_positions(index);
  const uint64_t masks =
      read_positions_avx2(index, layout, words_of(normal.presence), words_of(normal.masks));
  return without_spare_mask(index, std::move(normal), masks);
}

}  // namespace zen
