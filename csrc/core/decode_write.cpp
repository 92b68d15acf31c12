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
      : stream{message.values, message.readable_end()},
        message_(&message),
        shard_(&shard),
        masks_(message.mask_list()),
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

  // Appends the next present word, `word`, if `is_present`, without a branch: which words are
  // present cannot be guessed.
  void append_if(uint64_t is_present, uint64_t word, WordBatch& batch) {
    static constexpr uint64_t kNothing = 0;
    const auto nothing = reinterpret_cast<uintptr_t>(&kNothing);
    const auto next = reinterpret_cast<uintptr_t>(masks_);
    batch.words[batch.count] = word;
    batch.masks[batch.count] =
        *reinterpret_cast<const uint64_t*>(nothing ^ ((nothing ^ next) & (0 - is_present)));
    batch.streams[batch.count] = &stream;
    batch.count += static_cast<int>(is_present);
    masks_ += is_present;
  }

  // REQUIRES: all other words have been written.
  void write_ragged_word(const Gradient& gradient) const {
    if (message_ == nullptr || !has_ragged_slot(*shard_) || !bit_at(presence_, shard_->slots - 1))
      return;
    with_type(gradient.dtype, [&]<class T>(T) {
      T* elements = reinterpret_cast<T*>(gradient.data.data);
      ScalarWords::store(reinterpret_cast<const T*>(stream.values), *masks_,
                         elements + shard_->word(shard_->slots - 1) * kWordElems);
    });
  }

  ValueStream stream;

 private:
  const OpenMessage* message_ = nullptr;
  const Shard* shard_ = nullptr;
  const uint64_t* masks_ = nullptr;
  const uint64_t* presence_ = nullptr;
  uint64_t first_block_ = 0, end_block_ = 0;
};

// Writes a batch while the cache lines of the next one are on their way.
class DelayedWriter {
 public:
  DelayedWriter(WriteWords write, std::byte* gradient) : write_(write), gradient_(gradient) {}

  WordBatch& batch() { return batches_[now_]; }

  void write_if_full() {
    if (batch().count == kBatchWords) turn();
  }

  void finish() {
    turn();
    turn();
  }

 private:
  void turn() {
    now_ = 1 - now_;
    write_(batches_[now_], batches_[1 - now_], gradient_);
    batch().count = 0;
  }

  WriteWords write_;
  std::byte* gradient_;
  WordBatch batches_[2];
  int now_ = 0;
};

// Messages that are written together: at most one of each owner of a deal.
class Hand {
 public:
  explicit Hand(const Deal& deal)
      : deal_(deal), readers_(static_cast<size_t>(deal.owners)), windows_(readers_.size()) {}

  bool has(int owner) const { return readers_[static_cast<size_t>(owner)].has_message(); }

  void add(int owner, const OwnerReader& reader) {
    readers_[static_cast<size_t>(owner)] = reader;
    if (reader.first_block() >= reader.end_block()) return;
    begin_ = std::min(begin_, reader.first_block());
    end_ = std::max(end_, reader.end_block());
  }

  void write(WriteWords write, const Gradient& gradient) {
    DelayedWriter writer(write, gradient.data.data);
    for (uint64_t block = begin_; block < end_; block += 64) write_window(block, writer);
    writer.finish();
    for (const OwnerReader& reader : readers_) reader.write_ragged_word(gradient);
  }

 private:
  void write_window(uint64_t begin, DelayedWriter& writer) {
    uint64_t present = 0;
    for (size_t owner = 0; owner < readers_.size(); ++owner) {
      windows_[owner] = readers_[owner].window(begin);
      present += static_cast<uint64_t>(std::popcount(windows_[owner]));
    }
    const uint64_t blocks = std::min<uint64_t>(64, end_ - begin);
    if (present * kDenseWindow < readers_.size() * blocks)
      write_by_owner(begin, writer);
    else
      write_in_order(begin, blocks, writer);
  }

  // In the order of the gradient: memory likes that best, but absent words take time too.
  void write_in_order(uint64_t begin, uint64_t blocks, DelayedWriter& writer) {
    const auto n = static_cast<uint64_t>(deal_.owners);
    uint64_t word = begin * n;
    for (uint64_t block = 0; block < blocks; ++block) {
      auto owner = static_cast<size_t>(n == 1 ? 0 : deal_.first_owner(begin + block));
      for (uint64_t turn = 0; turn < n; ++turn, ++word) {
        readers_[owner].append_if(windows_[owner] >> block & 1, word, writer.batch());
        writer.write_if_full();
        if (++owner == n) owner = 0;
      }
    }
  }

  void write_by_owner(uint64_t begin, DelayedWriter& writer) {
    for (size_t owner = 0; owner < readers_.size(); ++owner)
      for (uint64_t rest = windows_[owner]; rest != 0; rest &= rest - 1) {
        const uint64_t block = begin + static_cast<uint64_t>(std::countr_zero(rest));
        readers_[owner].append_if(1, deal_.word(static_cast<int>(owner), block), writer.batch());
        writer.write_if_full();
      }
  }

  // From one word in so many on, words are written in the order of the gradient.
  static constexpr uint64_t kDenseWindow = 2;

  Deal deal_;
  std::vector<OwnerReader> readers_;  // by owner
  std::vector<uint64_t> windows_;     // presence bits of the window, by owner
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
void write_consecutive(const OpenMessage& message, const Shard& shard, WriteWords write,
                       const Gradient& gradient) {
  if (shard.slots == 0) return;
  Hand hand(Deal{});
  hand.add(0, OwnerReader(message, shard, shard.word(0)));
  hand.write(write, gradient);
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

WriteWords write_words_scalar(DType dtype) {
  return with_type(dtype, []<class T>(T) -> WriteWords { return write_words<ScalarWords, T>; });
}

void decode_write(std::span<const OpenMessage> messages, std::span<const Shard> shards,
                  const Gradient& gradient, Isa isa) {
  for (size_t i = 0; i < messages.size(); ++i) check(messages[i], shards[i], gradient);
  const WriteWords write =
      isa == Isa::avx2 ? write_words_avx2(gradient.dtype) : write_words_scalar(gradient.dtype);
  std::vector<Hand> hands;  // of the hashed placement: one, unless there are several chunks
  for (size_t i = 0; i < messages.size(); ++i) {
    const PlacementKind kind = shards[i].placement->kind();
    if (kind == PlacementKind::hashed)
      deal_to(hands, messages[i], shards[i]);
    else if (kind == PlacementKind::hashed_elements)
      write_members(messages[i], shards[i], gradient);
    else
      write_consecutive(messages[i], shards[i], write, gradient);
  }
  for (Hand& hand : hands) hand.write(write, gradient);
}

}  // namespace zen
