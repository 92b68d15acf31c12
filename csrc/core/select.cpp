#include "core/select.h"

#include <string>
#include <vector>

#include "core/error.h"
#include "core/message.h"
#include "core/select_elements.h"
#include "core/select_loop.h"
#include "core/words_scalar.h"

namespace zen {

namespace {

void check(const Gradient& gradient, const Placement& placement, WordRange range) {
  if (gradient.numel != placement.numel())
    throw InvalidArgument("the gradient has " + std::to_string(gradient.numel) +
                          " elements, its placement " + std::to_string(placement.numel()));
  if (gradient.data.bytes < gradient.numel * size_of(gradient.dtype))
    throw InvalidArgument("a gradient of " + std::to_string(gradient.numel) + " " +
                          name_of(gradient.dtype) + " elements does not fit in " +
                          std::to_string(gradient.data.bytes) + " bytes");
  if (range.begin > range.end || range.end > placement.words())
    throw InvalidArgument("word range [" + std::to_string(range.begin) + ", " +
                          std::to_string(range.end) + ") does not lie in [0, " +
                          std::to_string(placement.words()) + ")");
}

std::vector<OwnerStream> open_streams(const Selection& selection) {
  std::vector<OwnerStream> streams;
  streams.reserve(selection.size());
  for (const ShardSelection& shard : selection)
    streams.push_back({shard.message.data + kHeaderBytes,
                       reinterpret_cast<uint64_t*>(shard.masks.data),
                       reinterpret_cast<uint64_t*>(shard.presence.data)});
  return streams;
}

void close_streams(const std::vector<OwnerStream>& streams, Selection& selection) {
  for (size_t owner = 0; owner < streams.size(); ++owner) {
    const OwnerStream& stream = streams[owner];
    ShardSelection& shard = selection[owner];
    const std::byte* values = shard.message.data + kHeaderBytes;
    shard.count = static_cast<uint64_t>(stream.values - values) / size_of(shard.dtype);
    shard.present_words = static_cast<uint64_t>(stream.masks - shard.mask_list());
    shard.full_words = stream.full_words;
  }
}

// The words of `range` that all have kWordElems elements.
WordRange whole_words(const Placement& placement, WordRange range) {
  const bool ragged = range.begin < range.end && placement.elements(range.end - 1) < kWordElems;
  return {range.begin, range.end - (ragged ? 1 : 0)};
}

void select_whole_words(SelectWords select_words, const Gradient& gradient,
                        const Placement& placement, WordRange range,
                        std::vector<OwnerStream>& streams) {
  if (placement.kind() == PlacementKind::hashed) {
    return select_words(gradient.data.data, range, placement.deal(), streams.data());
  }
  // The other kinds give an owner consecutive words.
  for (int owner = 0; owner < placement.owners(); ++owner) {
    const Shard shard = placement.shard(owner, range);
    if (shard.slots == 0) continue;
    const uint64_t first = shard.word(0);
    select_words(gradient.data.data, {first, first + shard.slots}, Deal{},
                 &streams[static_cast<size_t>(owner)]);
  }
}

void select_ragged_word(const Gradient& gradient, const Placement& placement, uint64_t word,
                        std::vector<OwnerStream>& streams) {
  OwnerStream& stream = streams[static_cast<size_t>(placement.owner(word))];
  with_type(gradient.dtype, [&]<class T>(T) {
    T* elements = reinterpret_cast<T*>(gradient.data.data) + word * kWordElems;
    select_word<ScalarWords>(elements, placement.elements(word), stream);
  });
}

}  // namespace

SelectWords select_words_scalar(DType dtype) {
  return with_type(dtype, []<class T>(T) -> SelectWords { return select_words<ScalarWords, T>; });
}

Selection select(const Gradient& gradient, const Placement& placement, WordRange range,
                 const Allocate& allocate, Isa isa) {
  check(gradient, placement, range);
  if (placement.kind() == PlacementKind::hashed_elements)
    return select_elements(gradient, placement, range, allocate);
  Selection selection = empty_selection(gradient.dtype, placement, range, allocate);
  std::vector<OwnerStream> streams = open_streams(selection);
  const SelectWords select_words =
      isa == Isa::avx2 ? select_words_avx2(gradient.dtype) : select_words_scalar(gradient.dtype);
  const WordRange whole = whole_words(placement, range);
  select_whole_words(select_words, gradient, placement, whole, streams);
  if (whole.end < range.end) select_ragged_word(gradient, placement, whole.end, streams);
  close_streams(streams, selection);
  return selection;
}

}  // namespace zen
