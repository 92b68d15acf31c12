#include "core/decode_write.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "core/bits.h"
#include "core/decode_write_kernels.h"
#include "core/decode_write_loop.h"
#include "core/error.h"
#include "core/words_scalar.h"

namespace zen {

namespace {

void check(const OpenMessage& message, const Shard& shard, const Gradient& gradient) {
  if (message.header.dtype != gradient.dtype)
    throw InvalidArgument(std::string("the message holds ") + name_of(message.header.dtype) +
                          " values, the gradient " + name_of(gradient.dtype));
  const uint64_t numel = shard.placement->numel();
  if (gradient.numel != numel || gradient.data.bytes < numel * size_of(gradient.dtype))
    throw InvalidArgument("the placement has " + std::to_string(numel) +
                          " elements, the gradient " + std::to_string(gradient.numel) + " in " +
                          std::to_string(gradient.data.bytes) + " bytes");
}

bool has_ragged_slot(const Shard& shard) {
  return shard.slots > 0 && shard.last_slot_elements() < kWordElems;
}

// What is left of one owner's message. The owner has one word in every block of the deal, so its
// slots are consecutive blocks. The gradient's last word, if it is short, is left for the end.
class OwnerReader {
 public:
  OwnerReader() = default;
  OwnerReader(const OpenMessage& message, const Shard& shard, uint64_t first_block)
      : stream{message.mask_list(), message.values, message.readable_end()},
        message_(&message),
        shard_(&shard),
        presence_(message.presence_bits()),
        first_block_(first_block),
        end_block_(first_block + shard.slots - (has_ragged_slot(shard) ? 1 : 0)) {}

  bool has_message() const { return message_ != nullptr; }
  uint64_t first_block() const { return first_block_; }
  uint64_t end_block() const { return end_block_; }

  // Presence bits of the 64 blocks from `block` on.
  uint64_t window(uint64_t block) const {
    if (block >= end_block_ || block + 64 <= first_block_) return 0;
    const uint64_t late = block < first_block_ ? first_block_ - block : 0;
    const uint64_t slot = block + late - first_block_, slots = end_block_ - first_block_;
    uint64_t bits = presence_[slot / 64] >> slot % 64;
    if (slot % 64 != 0 && slot / 64 + 1 < words_for_bits(slots))
      bits |= presence_[slot / 64 + 1] << (64 - slot % 64);
    return (slots - slot < 64 ? bits & low_bits(slots - slot) : bits) << late;
  }

  // REQUIRES: all other words have been written.
  void write_ragged_word(const Gradient& gradient) const {
    if (message_ == nullptr || !has_ragged_slot(*shard_) || !bit_at(presence_, shard_->slots - 1))
      return;
    with_type(gradient.dtype, [&]<class T>(T) {
      T* elements = reinterpret_cast<T*>(gradient.data.data);
      ScalarWords::store(reinterpret_cast<const T*>(stream.values), *stream.masks,
                         elements + shard_->word(shard_->slots - 1) * kWordElems);
    });
  }

  WriteStream stream;

 private:
  const OpenMessage* message_ = nullptr;
  const Shard* shard_ = nullptr;
  const uint64_t* presence_ = nullptr;
  uint64_t first_block_ = 0, end_block_ = 0;
};

// Messages that are written together: at most one of each owner of a deal.
class Hand {
 public:
  explicit Hand(const Deal& deal)
      : deal_(deal),
        window_blocks_(std::clamp<uint64_t>(kWindowWords / n(), 1, 64)),
        readers_(n()),
        window_(window_blocks_ * n()) {}

  bool has(int owner) const { return readers_[static_cast<size_t>(owner)].has_message(); }

  void add(int owner, const OwnerReader& reader) {
    readers_[static_cast<size_t>(owner)] = reader;
    if (reader.first_block() >= reader.end_block()) return;
    begin_ = std::min(begin_, reader.first_block());
    end_ = std::max(end_, reader.end_block());
  }

  void write(const WriteKernels& kernels, const Gradient& gradient) {
    for (uint64_t block = begin_; block < end_; block += window_blocks_) {
      gather(block, kernels);
      kernels.write(window_, gradient.data.data);
    }
    for (const OwnerReader& reader : readers_) reader.write_ragged_word(gradient);
  }

 private:
  uint64_t n() const { return static_cast<uint64_t>(deal_.owners); }

  void gather(uint64_t begin, const WriteKernels& kernels) {
    int first_owners[64] = {};
    if (n() > 1)
      for (uint64_t block = 0; block < window_blocks_; ++block)
        first_owners[block] = deal_.first_owner(begin + block);
    window_.first_word = begin * n();
    for (int owner = 0; owner < deal_.owners; ++owner) {
      OwnerReader& reader = readers_[static_cast<size_t>(owner)];
      const uint64_t blocks = reader.window(begin) & low_bits(window_blocks_);
      if (blocks != 0)
        kernels.gather({blocks, owner, deal_.owners, first_owners}, reader.stream, window_);
    }
  }

  // So many words at a time, or those of one block: their masks stay in the first-level cache.
  static constexpr uint64_t kWindowWords = 256;

  Deal deal_;
  uint64_t window_blocks_;
  std::vector<OwnerReader> readers_;  // by owner
  WordWindow window_;
  uint64_t begin_ = ~uint64_t{0}, end_ = 0;
};

// Adds the message to the first hand that has none of its owner.
void deal_to(std::vector<Hand>& hands, const OpenMessage& message, const Shard& shard) {
  const auto free =
      std::ranges::find_if(hands, [&](const Hand& hand) { return !hand.has(shard.owner); });
  Hand& hand = free != hands.end() ? *free : hands.emplace_back(shard.placement->deal());
  hand.add(shard.owner, OwnerReader(message, shard, shard.first_slot));
}

// Other placements give an owner consecutive words: blocks of a deal with one owner.
void write_consecutive(const OpenMessage& message, const Shard& shard, const WriteKernels& kernels,
                       const Gradient& gradient) {
  if (shard.slots == 0) return;
  Hand hand(Deal{});
  hand.add(0, OwnerReader(message, shard, shard.word(0)));
  hand.write(kernels, gradient);
}

// One message about a list of single elements. A scattered element is a cache line of its own,
// whatever the instruction set.
void write_members(const OpenMessage& message, const Shard& shard, const Gradient& gradient) {
  const uint64_t* masks = message.mask_list();
  with_type(gradient.dtype, [&]<class T>(T) {
    T* elements = reinterpret_cast<T*>(gradient.data.data);
    const T* values = reinterpret_cast<const T*>(message.values);
    for_each_bit({message.presence_bits(), shard.presence_words()}, [&](uint64_t slot) {
      const uint32_t* members = shard.members + slot * kWordElems;
      for (uint64_t mask = *masks++; mask != 0; mask &= mask - 1)
        elements[members[std::countr_zero(mask)]] = *values++;
    });
  });
}

}  // namespace

WriteKernels write_kernels_scalar(DType dtype) {
  return with_type(dtype, []<class T>(T) { return write_kernels<ScalarWords, T>(); });
}

void decode_write(std::span<const OpenMessage> messages, std::span<const Shard> shards,
                  const Gradient& gradient, Isa isa) {
  for (size_t i = 0; i < messages.size(); ++i) check(messages[i], shards[i], gradient);
  const WriteKernels kernels =
      isa == Isa::avx2 ? write_kernels_avx2(gradient.dtype) : write_kernels_scalar(gradient.dtype);
  std::vector<Hand> hands;  // of the hashed placement: one, unless there are several chunks
  for (size_t i = 0; i < messages.size(); ++i) {
    const PlacementKind kind = shards[i].placement->kind();
    if (kind == PlacementKind::hashed)
      deal_to(hands, messages[i], shards[i]);
    else if (kind == PlacementKind::hashed_elements)
      write_members(messages[i], shards[i], gradient);
    else
      write_consecutive(messages[i], shards[i], kernels, gradient);
  }
  for (Hand& hand : hands) hand.write(kernels, gradient);
}

}  // namespace zen
