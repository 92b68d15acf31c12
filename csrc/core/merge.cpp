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

ShardSelection allocate_result(const Shard& shard, DType dtype, const Allocate& allocate) {
  ShardSelection result;
  result.shard = shard;
  result.dtype = dtype;
  result.message = allocate(selection_capacity(shard, dtype));
  result.presence = allocate(shard.presence_words() * 8);
  result.masks = allocate(shard.slots * 8);
  return result;
}

// With several dtypes nothing may stay where it is: pack reads one.
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
}

// The gradient's last word may be full with fewer than kWordElems elements.
bool ragged_word_is_full(const ShardSelection& result) {
  const Shard& shard = result.shard;
  if (shard.slots == 0) return false;
  const uint64_t elements = shard.last_slot_elements();
  return elements < kWordElems && bit_at(result.presence_bits(), shard.slots - 1) &&
         result.mask_list()[result.present_words - 1] == low_bits(elements);
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
  std::vector<Rank> ranks = open_ranks(messages, isa);
  ShardSelection result = allocate_result(shard, dtype, allocate);
  auto* presence = reinterpret_cast<uint64_t*>(result.presence.data);
  MaskStream masks{reinterpret_cast<uint64_t*>(result.masks.data)};
  std::byte* values = result.message.data + kHeaderBytes;
  const auto block = std::make_unique<MergeBlock>();
  for (uint64_t index = 0; index < shard.presence_words(); ++index) {
    begin_block(ranks, one_dtype, index, *block);
    presence[index] = block->listed;
    if (block->listed == 0) continue;
    for (Rank& rank : ranks) rank.add(rank.stream, *block);
    const uint64_t count = pack(*block, masks);
    values = divide(block->packed, count, divisor, values);
    result.count += count;
  }
  result.present_words = static_cast<uint64_t>(masks.masks - result.mask_list());
  result.full_words = masks.full_words + (ragged_word_is_full(result) ? 1 : 0);
  return result;
}

}  // namespace zen
