// Encoding `positions`: an Elias-Fano list of the positions of the listed elements in the shard.
// About 2 + log2(1 / density) bits for each, so it suits scattered elements up to about a fifth of
// all.
//
//   index := Elias-Fano list of `count` numbers below shard.elements

#include "core/elias_fano.h"
#include "core/format.h"
#include "core/position_kernels.h"

namespace zen {

namespace {

Plan plan(const ShardSelection& selection) {
  const EliasFano layout(selection.count, selection.shard.elements);
  return {selection.count, selection.present_words, layout.bytes(), 0};
}

// The list is longest when everything is listed, but then its low bits are empty: the padding of
// two strings instead of one may add 8 bytes to a shorter list.
uint64_t max_bytes(const Shard& shard, DType dtype) {
  return round_up_8(shard.elements * size_of(dtype)) +
         EliasFano(shard.elements, shard.elements).bytes() + 8;
}

void write_index(const ShardSelection& selection, const Plan&, uint64_t* out) {
  write_positions(selection, EliasFano(selection.count, selection.shard.elements), out,
                  preferred_isa());
}

NormalForm read_index(const IndexView& index) {
  const EliasFano layout(index.header.count, index.shard.elements);
  check_field("flags", index.header.flags, 0);
  check_field("index_bytes", index.header.index_bytes, layout.bytes());
  check_shape(layout, index.words);
  return read_positions(index, layout, preferred_isa());
}

}  // namespace

const Format kPositionsFormat{Encoding::positions, plan,      max_bytes, nullptr,
                              write_index,         read_index};

}  // namespace zen
