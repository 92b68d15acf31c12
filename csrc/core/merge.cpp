#include "core/merge.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include "core/bits.h"
#include "core/error.h"
#include "core/merge_loop.h"
#include "core/words_scalar.h"

namespace zen {

namespace {

MergeKernels kernels_of(Isa isa, DType dtype) {
  return isa == Isa::avx2 ? merge_kernels_avx2(dtype) : merge_kernels_scalar(dtype);
}

// One message and the kernel that fits its dtype.
struct Rank {
  RankStream stream;
  AddRank add = nullptr;
};

std::vector<Rank> open_ranks(std::span<const OpenMessage> messages, Isa isa) {
  std::vector<Rank> ranks;
  ranks.reserve(messages.size());
  for (const OpenMessage& open : messages)
    ranks.push_back({{open.presence_bits(), open.mask_list(), open.values, open.readable_end()},
                     kernels_of(isa, open.header.dtype).add});
  return ranks;
}

bool have_one_dtype(std::span<const OpenMessage> messages) {
  return std::ranges::all_of(messages, [&](const OpenMessage& open) {
    return open.header.dtype == messages.front().header.dtype;
  });
}

// The lists of the result, as far as they are written.
struct ResultStream {
  explicit ResultStream(ShardSelection& result)
      : presence(reinterpret_cast<uint64_t*>(result.presence.data)),
        masks(reinterpret_cast<uint64_t*>(result.masks.data)),
        values(result.message.data + kHeaderBytes) {}

  void append_masks(const MergeBlock& block) {
    for (uint64_t rest = block.listed; rest != 0; rest &= rest - 1) {
      const uint64_t mask = block.masks[std::countr_zero(rest)];
      full_words += mask == ~uint64_t{0};
      *masks++ = mask;
    }
  }

  uint64_t* presence;
  uint64_t* masks;
  std::byte* values;
  uint64_t count = 0;
  uint64_t full_words = 0;  // those of kWordElems elements
};

ShardSelection allocate_result(const Shard& shard, DType dtype, const Allocate& allocate) {
  ShardSelection result;
  result.shard = shard;
  result.dtype = dtype;
  result.message = allocate(selection_capacity(shard, dtype));
  result.presence = allocate(shard.presence_words() * 8);
  result.masks = allocate(shard.slots * 8);
  return result;
}

void begin_block(std::span<const Rank> ranks, bool one_dtype, uint64_t index, MergeBlock& block) {
  uint64_t listed = 0, several = 0;
  for (const Rank& rank : ranks) {
    const uint64_t present = rank.stream.presence[index];
    several |= listed & present;
    listed |= present;
  }
  block.index = index;
  block.listed = listed;
  block.summed = one_dtype ? several : listed;
  block.begun = 0;
}

// The gradient's last word may be full with fewer than kWordElems elements.
bool ragged_word_is_full(const ShardSelection& result) {
  const Shard& shard = result.shard;
  const uint64_t elements = shard.last_slot_elements();
  return elements < kWordElems && bit_at(result.presence_bits(), shard.slots - 1) &&
         result.mask_list()[result.present_words - 1] == low_bits(elements);
}

void close_result(const ResultStream& out, ShardSelection& result) {
  result.count = out.count;
  result.present_words = static_cast<uint64_t>(out.masks - result.mask_list());
  result.full_words = out.full_words;
  if (result.shard.slots > 0 && ragged_word_is_full(result)) ++result.full_words;
}

}  // namespace

MergeKernels merge_kernels_scalar(DType dtype) {
  return with_type(dtype, []<class T>(T) { return merge_kernels<ScalarWords, T>(); });
}

ShardSelection merge(std::span<const OpenMessage> messages, const Shard& shard, DType dtype,
                     float divisor, const Allocate& allocate, Isa isa) {
  if (messages.empty()) throw InvalidArgument("there is no message to merge");
  const bool one_dtype = have_one_dtype(messages);
  const PackBlock pack = kernels_of(isa, messages.front().header.dtype).pack;
  const DivideBlock divide = kernels_of(isa, dtype).divide;
  ShardSelection result = allocate_result(shard, dtype, allocate);
  std::vector<Rank> ranks = open_ranks(messages, isa);
  ResultStream out(result);
  const auto block = std::make_unique_for_overwrite<MergeBlock>();
  for (uint64_t index = 0; index < shard.presence_words(); ++index) {
    begin_block(ranks, one_dtype, index, *block);
    out.presence[index] = block->listed;
    if (block->listed == 0) continue;
    for (Rank& rank : ranks) rank.add(rank.stream, *block);
    const uint64_t count = pack(*block);
    out.values = divide(block->packed, count, divisor, out.values);
    out.append_masks(*block);
    out.count += count;
  }
  close_result(out, result);
  return result;
}

}  // namespace zen
