#include "core/merge.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include "core/bits.h"
#include "core/error.h"
#include "core/merge_loop.h"
#include "core/merge_union.h"
#include "core/words_scalar.h"

namespace zen {

namespace {

MergeKernels kernels_of(Isa isa, DType dtype) {
  return isa == Isa::avx2 ? merge_kernels_avx2(dtype) : merge_kernels_scalar(dtype);
}

std::vector<RankStream> open_ranks(std::span<const OpenMessage> messages) {
  std::vector<RankStream> ranks;
  ranks.reserve(messages.size());
  for (const OpenMessage& open : messages)
    ranks.push_back({open.presence_bits(), open.mask_list(),
                     open.mask_list() + open.header.present_words, open.values,
                     open.readable_end()});
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

// Blocks in the order of their slots: every way to merge has this form.
class BlockMerger {
 public:
  BlockMerger(std::span<const OpenMessage> messages, Isa isa)
      : ranks_(open_ranks(messages)),
        one_dtype_(have_one_dtype(messages)),
        pack_(kernels_of(isa, messages.front().header.dtype).pack),
        block_(std::make_unique<MergeBlock>()) {
    for (const OpenMessage& open : messages) add_.push_back(kernels_of(isa, open.header.dtype).add);
  }

  // Which slots of the block are listed.
  uint64_t begin(uint64_t index) {
    uint64_t listed = 0, several = 0;
    for (const RankStream& rank : ranks_) {
      const uint64_t present = rank.presence[index];
      several |= listed & present;
      listed |= present;
    }
    block_->index = index;
    block_->listed = listed;
    // With several dtypes nothing may stay where it is: pack reads one.
    block_->summed = one_dtype_ ? several : listed;
    return listed;
  }

  // Appends the block's masks; returns the number of its sums.
  uint64_t sum(MaskStream& masks) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) add_[rank](ranks_[rank], *block_);
    return pack_(*block_, masks);
  }

  const float* sums() const { return block_->packed; }

 private:
  std::vector<RankStream> ranks_;
  std::vector<AddRank> add_;  // by rank
  bool one_dtype_;
  PackBlock pack_;
  std::unique_ptr<MergeBlock> block_;
};

// The same in the space of unions. REQUIRES: the messages have one dtype.
class UnionMerger {
 public:
  explicit UnionMerger(std::span<const OpenMessage> messages)
      : ranks_(open_ranks(messages)),
        sum_(sum_block_avx2(messages.front().header.dtype)),
        block_(std::make_unique<UnionBlock>(messages.size())) {}

  uint64_t begin(uint64_t index) {
    block_->index = index;
    block_->listed = 0;
    for (const RankStream& rank : ranks_) block_->listed |= rank.presence[index];
    return block_->listed;
  }

  uint64_t sum(MaskStream& masks) { return sum_(ranks_.data(), ranks_.size(), *block_, masks); }

  const float* sums() const { return block_->packed; }

 private:
  std::vector<RankStream> ranks_;
  SumBlock sum_;
  std::unique_ptr<UnionBlock> block_;
};

// The gradient's last word may be full with fewer than kWordElems elements.
bool ragged_word_is_full(const ShardSelection& result) {
  const Shard& shard = result.shard;
  if (shard.slots == 0) return false;
  const uint64_t elements = shard.last_slot_elements();
  return elements < kWordElems && bit_at(result.presence_bits(), shard.slots - 1) &&
         result.mask_list()[result.present_words - 1] == low_bits(elements);
}

template <class Merger>
ShardSelection merge_blocks(Merger&& merger, DivideBlock divide, float divisor,
                            ShardSelection result) {
  auto* presence = reinterpret_cast<uint64_t*>(result.presence.data);
  MaskStream masks{reinterpret_cast<uint64_t*>(result.masks.data)};
  std::byte* values = result.message.data + kHeaderBytes;
  for (uint64_t index = 0; index < result.shard.presence_words(); ++index) {
    presence[index] = merger.begin(index);
    if (presence[index] == 0) continue;
    const uint64_t count = merger.sum(masks);
    values = divide(merger.sums(), count, divisor, values);
    result.count += count;
  }
  result.present_words = static_cast<uint64_t>(masks.masks - result.mask_list());
  result.full_words = masks.full_words + (ragged_word_is_full(result) ? 1 : 0);
  return result;
}

}  // namespace

MergeKernels merge_kernels_scalar(DType dtype) {
  return with_type(dtype, []<class T>(T) { return merge_kernels<ScalarWords, T>(); });
}

ShardSelection merge(std::span<const OpenMessage> messages, const Shard& shard, DType dtype,
                     float divisor, const Allocate& allocate, Isa isa) {
  if (messages.empty()) throw InvalidArgument("there is no message to merge");
  const DivideBlock divide = kernels_of(isa, dtype).divide;
  ShardSelection result = allocate_result(shard, dtype, allocate);
  if (isa == Isa::avx2 && quick_pext() && have_one_dtype(messages))
    return merge_blocks(UnionMerger(messages), divide, divisor, std::move(result));
  return merge_blocks(BlockMerger(messages, isa), divide, divisor, std::move(result));
}

}  // namespace zen
