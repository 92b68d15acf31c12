#include "core/select.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "core/bits.h"
#include "core/dgc_select_kernels.h"
#include "core/dgc_select_loop.h"
#include "core/dgc_words_scalar.h"
#include "core/error.h"
#include "core/message.h"
#include "core/select_elements.h"
#include "core/select_loop.h"
#include "core/words_scalar.h"

namespace zen {

void check_selectable(const Gradient& gradient, const Placement& placement, WordRange range) {
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

namespace {

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

// Calls select_words(range, deal, streams) for the whole words of the range.
template <class F>
void select_whole_words(F&& select_words, const Placement& placement, WordRange range,
                        std::vector<OwnerStream>& streams) {
  if (placement.kind() == PlacementKind::hashed)
    return select_words(range, placement.deal(), streams.data());
  // The other kinds give an owner consecutive words.
  for (int owner = 0; owner < placement.owners(); ++owner) {
    const Shard shard = placement.shard(owner, range);
    if (shard.slots == 0) continue;
    const uint64_t first = shard.word(0);
    select_words({first, first + shard.slots}, Deal{}, &streams[static_cast<size_t>(owner)]);
  }
}

// The non-zeros, as they are.
struct PlainSelect {
  const Gradient& gradient;
  SelectWords kernel;

  void whole_words(WordRange range, const Deal& deal, OwnerStream* streams) const {
    kernel(gradient.data.data, range, deal, streams);
  }
  void ragged_word(uint64_t word, uint64_t elements, OwnerStream& stream) const {
    with_type(gradient.dtype, [&]<class T>(T) {
      select_word<ScalarWords>(reinterpret_cast<T*>(gradient.data.data) + word * kWordElems,
                               elements, stream);
    });
  }
};

// Samples are drawn block by block.
template <class F>
void for_each_sampled_block(WordRange range, F&& f) {
  constexpr uint64_t kBlockWords = 32;
  for (uint64_t word = range.begin; word < range.end; word += kBlockWords)
    f(WordRange{word, std::min(word + kBlockWords, range.end)});
}

// What the DGC pass lists. Samples are drawn a few words ahead of the pass, which finds their cache
// lines warm.
struct DgcSelect {
  const Gradient& gradient;
  DgcPass& pass;
  DgcSelectWords kernel;

  void whole_words(WordRange range, const Deal& deal, OwnerStream* streams) const {
    if (pass.sampler == nullptr) return kernel(gradient.data.data, range, deal, streams, pass);
    for_each_sampled_block(range, [&](WordRange block) {
      pass.sampler->observe(gradient, pass, block.begin * kWordElems, block.end * kWordElems);
      kernel(gradient.data.data, block, deal, streams, pass);
    });
  }
  void ragged_word(uint64_t word, uint64_t elements, OwnerStream& stream) const {
    const uint64_t begin = word * kWordElems;
    if (pass.sampler != nullptr) pass.sampler->observe(gradient, pass, begin, begin + elements);
    with_dgc_types(gradient.dtype, pass, [&]<class T, class M>(T, M) {
      const DgcArrays<T, M> arrays(gradient.data.data, pass, begin);
      dgc_select_word<ScalarWords, DgcScalarWords>(arrays.gradient, arrays.residual,
                                                   arrays.momentum, elements, stream, pass);
    });
  }
};

template <class How>
Selection select_as(const How& how, const Placement& placement, WordRange range,
                    const Allocate& allocate) {
  Selection selection = empty_selection(how.gradient.dtype, placement, range, allocate);
  std::vector<OwnerStream> streams = open_streams(selection);
  const WordRange whole = whole_words(placement, range);
  select_whole_words(
      [&](WordRange words, const Deal& deal, OwnerStream* to) { how.whole_words(words, deal, to); },
      placement, whole, streams);
  if (whole.end < range.end)
    how.ragged_word(whole.end, placement.elements(whole.end),
                    streams[static_cast<size_t>(placement.owner(whole.end))]);
  close_streams(streams, selection);
  return selection;
}

// Writes what a placement of one owner listed to its places in the gradient.
void put_back(const ShardSelection& listed, const Gradient& gradient) {
  with_type(gradient.dtype, [&]<class T>(T) {
    const T* values = reinterpret_cast<const T*>(listed.message.data + kHeaderBytes);
    const uint64_t* mask = listed.mask_list();
    for_each_bit({listed.presence_bits(), listed.shard.presence_words()}, [&](uint64_t slot) {
      T* elements = reinterpret_cast<T*>(gradient.data.data) + listed.shard.word(slot) * kWordElems;
      ScalarWords::store(values, *mask, elements);
      values += std::popcount(*mask++);
    });
  });
}

// The pass works on words. For a placement of elements, which exists for comparison only, what it
// sends goes through the gradient, as non-zeros. REQUIRES: kind is hashed_elements.
Selection dgc_select_elements(const DgcSelect& how, const Placement& placement, WordRange range,
                              const Allocate& allocate) {
  const auto whole = Placement::make(PlacementKind::whole, placement.numel(), 1, 0);
  const Selection listed = select_as(how, *whole, range, allocate);
  put_back(listed[0], how.gradient);
  return select_elements(how.gradient, placement, range, allocate);
}

}  // namespace

SelectWords select_words_scalar(DType dtype) {
  return with_type(dtype, []<class T>(T) -> SelectWords { return select_words<ScalarWords, T>; });
}

DgcSelectWords dgc_select_words_scalar(DType dtype, const DgcPass& pass) {
  return dgc_kernel<ScalarWords, DgcScalarWords>(dtype, pass);
}

void plan_samples(DgcSampler& sampler, const Placement& placement, WordRange range) {
  const auto plan = [&](WordRange words) {
    for_each_sampled_block(words, [&](WordRange block) {
      sampler.plan(block.begin * kWordElems, block.end * kWordElems);
    });
  };
  const WordRange whole = whole_words(placement, range);
  std::vector<OwnerStream> none(static_cast<size_t>(placement.owners()));
  select_whole_words([&](WordRange words, const Deal&, OwnerStream*) { plan(words); }, placement,
                     whole, none);
  if (whole.end < range.end)
    sampler.plan(whole.end * kWordElems, whole.end * kWordElems + placement.elements(whole.end));
}

Selection select(const Gradient& gradient, const Placement& placement, WordRange range,
                 const Allocate& allocate, Isa isa) {
  check_selectable(gradient, placement, range);
  if (placement.kind() == PlacementKind::hashed_elements)
    return select_elements(gradient, placement, range, allocate);
  const SelectWords kernel =
      isa == Isa::avx2 ? select_words_avx2(gradient.dtype) : select_words_scalar(gradient.dtype);
  return select_as(PlainSelect{gradient, kernel}, placement, range, allocate);
}

Selection dgc_select(const Gradient& gradient, const Placement& placement, WordRange range,
                     DgcPass& pass, const Allocate& allocate, Isa isa) {
  check_selectable(gradient, placement, range);
  const DgcSelectWords kernel = isa == Isa::avx2 ? dgc_select_words_avx2(gradient.dtype, pass)
                                                 : dgc_select_words_scalar(gradient.dtype, pass);
  const DgcSelect how{gradient, pass, kernel};
  return placement.kind() == PlacementKind::hashed_elements
             ? dgc_select_elements(how, placement, range, allocate)
             : select_as(how, placement, range, allocate);
}

}  // namespace zen
