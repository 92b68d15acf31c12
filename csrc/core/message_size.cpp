#include "core/message_size.h"

#include <algorithm>
#include <cmath>

#include "core/bits.h"

namespace zen {

namespace {

uint64_t rounded(double x, uint64_t most) {
  return std::min(static_cast<uint64_t>(std::max(0.0, x) + 0.5), most);
}

// A selection of which only the counts exist: all that the sizes of encodings depend on.
ShardSelection selection_of(const Counts& listed, const PartSize& part, DType dtype) {
  ShardSelection selection;
  selection.shard.slots = rounded(part.slots, ~uint64_t{0});
  selection.shard.elements = rounded(part.elements, selection.shard.slots * kWordElems);
  selection.dtype = dtype;
  selection.count = rounded(listed.elements, selection.shard.elements);
  const uint64_t least = (selection.count + kWordElems - 1) / kWordElems;
  selection.present_words =
      std::max(least, rounded(listed.words, std::min(selection.shard.slots, selection.count)));
  selection.full_words =
      rounded(listed.full_words, std::min(selection.present_words, selection.count / kWordElems));
  return selection;
}

double raw_bytes(const ShardSelection& selection) {
  return static_cast<double>(round_up_8(selection.count * size_of(selection.dtype)));
}

double index_bytes(const ShardSelection& selection, Choice choice) {
  return static_cast<double>(encoded_bytes(selection, choice) - kHeaderBytes) -
         (selection.count == 0 ? 0 : raw_bytes(selection));
}

// `blocks` counts where the listed words are, which counts alone do not tell.
double blocks_size(const Counts& listed, const ShardSelection& selection) {
  const uint64_t blocks = (selection.shard.slots + kBlockWords - 1) / kBlockWords;
  const double present = std::min(listed.blocks, static_cast<double>(blocks));
  const double values = present * kBlockWords * kWordElems * size_of(selection.dtype);
  return kHeaderBytes +
         std::min(values,
                  static_cast<double>(selection.shard.elements * size_of(selection.dtype))) +
         static_cast<double>(words_for_bits(blocks) * 8);
}

double cheapest_packed(const ShardSelection& selection, double packed_share) {
  double index = index_bytes(selection, Choice::words);
  for (const Choice choice : {Choice::positions, Choice::bitmap})
    index = std::min(index, index_bytes(selection, choice));
  const double dense =
      static_cast<double>(selection.shard.elements * size_of(selection.dtype)) * packed_share;
  return kHeaderBytes + std::min(dense, raw_bytes(selection) * packed_share + index);
}

}  // namespace

double message_size(const Counts& listed, const PartSize& part, DType dtype, Choice choice,
                    double packed_share) {
  const ShardSelection selection = selection_of(listed, part, dtype);
  if (choice == Choice::blocks) return blocks_size(listed, selection);
  if (choice == Choice::cheapest && packed_share < 1)
    return cheapest_packed(selection, packed_share);
  return static_cast<double>(encoded_bytes(selection, choice));
}

}  // namespace zen
