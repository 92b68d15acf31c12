// Elias-Fano lists of positions, the index of encoding `positions`, to and from presence bits and
// masks. Every instruction set writes the same bytes and accepts the same lists.
#pragma once

#include "core/cpu_features.h"
#include "core/elias_fano.h"
#include "core/format.h"

namespace zen {

// REQUIRES: layout fits the selection; out has room for layout.words().
void write_positions(const ShardSelection& selection, const EliasFano& layout, uint64_t* out,
                     Isa isa);

// REQUIRES: check_shape(layout, index.words) has passed.
NormalForm read_positions(const IndexView& index, const EliasFano& layout, Isa isa);

// The AVX2 versions work slot by slot. With longer low parts most slots are empty, and going from
// number to number is quicker; with shorter ones a slot's high parts do not fit a word.
constexpr bool writes_slots(uint64_t low_width) {
  return low_width <= 5;
}
constexpr bool reads_slots(uint64_t low_width) {
  return 2 <= low_width && low_width <= 5;
}

// REQUIRES: supported(Isa::avx2), writes_slots(layout.low_width()).
void write_positions_avx2(const ShardSelection& selection, const EliasFano& layout, uint64_t* out);

// REQUIRES: supported(Isa::avx2), reads_slots(layout.low_width()). Writes presence bits (zeroed
// before) and masks (room for present_words + 1) and returns how many masks. Throws
// MalformedMessage if the list does not ascend strictly or has more than present_words words. Bits
// past the shard's end are the caller's to find.
uint64_t read_positions_avx2(const IndexView& index, const EliasFano& layout, uint64_t* presence,
                             uint64_t* masks);

}  // namespace zen
