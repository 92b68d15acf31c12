#include "core/decode_write.h"

#include <bit>
#include <string>
#include <utility>
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

// Reads the present slots of one message, 64 slots at a time. The gradient's last word, if it is
// shorter than the others, comes apart from them.
class Reader {
 public:
  Reader(const OpenMessage& message, const Shard& shard)
      : values{message.values, message.readable_end()},
        shard_(shard),
        presence_(message.presence_bits()),
        masks_(message.mask_list()),
        whole_slots_(has_ragged_slot() ? shard.slots - 1 : shard.slots) {}

  bool done() const { return slot_ >= whole_slots_; }

  void next(WordBatch& batch) {  // REQUIRES: !done()
    uint64_t rest = presence_[slot_ / 64];
    if (whole_slots_ - slot_ < 64) rest &= low_bits(whole_slots_ - slot_);
    batch.masks = masks_;
    batch.count = 0;
    for (; rest != 0; rest &= rest - 1)
      batch.words[batch.count++] =
          shard_.word(slot_ + static_cast<uint64_t>(std::countr_zero(rest)));
    masks_ += batch.count;
    slot_ += 64;
  }

  bool next_ragged(WordBatch& batch) const {  // REQUIRES: done()
    if (!has_ragged_slot() || !bit_at(presence_, whole_slots_)) return false;
    batch.words[0] = shard_.word(whole_slots_);
    batch.masks = masks_;
    batch.count = 1;
    return true;
  }

  ValueStream values;

 private:
  bool has_ragged_slot() const {
    return shard_.slots > 0 && shard_.last_slot_elements() < kWordElems;
  }

  Shard shard_;
  const uint64_t* presence_;
  const uint64_t* masks_;
  uint64_t whole_slots_;
  uint64_t slot_ = 0;  // of the next batch
};

// Goes around the readers, a batch from each, until all are done.
class Rotation {
 public:
  explicit Rotation(std::vector<Reader>& readers) : readers_(readers) {}

  // The reader that the batch is from, or null at the end; the batch is empty then.
  Reader* next(WordBatch& batch) {
    for (size_t tried = 0; tried < readers_.size(); ++tried) {
      Reader& reader = readers_[turn_];
      turn_ = turn_ + 1 == readers_.size() ? 0 : turn_ + 1;
      if (reader.done()) continue;
      reader.next(batch);
      return &reader;
    }
    batch.count = 0;
    return nullptr;
  }

 private:
  std::vector<Reader>& readers_;
  size_t turn_ = 0;
};

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

void write_ragged(std::span<Reader> readers, const Gradient& gradient) {
  const WriteWords write = write_words_scalar(gradient.dtype);
  WordBatch batch;
  for (Reader& reader : readers)
    if (reader.next_ragged(batch)) write(batch, WordBatch{}, reader.values, gradient.data.data);
}

}  // namespace

WriteWords write_words_scalar(DType dtype) {
  return with_type(dtype, []<class T>(T) -> WriteWords { return write_words<ScalarWords, T>; });
}

void decode_write(std::span<const OpenMessage> messages, std::span<const Shard> shards,
                  const Gradient& gradient, Isa isa) {
  std::vector<Reader> readers;
  readers.reserve(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) check(messages[i], shards[i], gradient);
  for (size_t i = 0; i < messages.size(); ++i) {
    if (shards[i].placement->kind() == PlacementKind::hashed_elements)
      write_members(messages[i], shards[i], gradient);
    else
      readers.emplace_back(messages[i], shards[i]);
  }
  const WriteWords write =
      isa == Isa::avx2 ? write_words_avx2(gradient.dtype) : write_words_scalar(gradient.dtype);
  Rotation rotation(readers);
  WordBatch batches[2];
  WordBatch *now = &batches[0], *next = &batches[1];
  for (Reader* reader = rotation.next(*now); reader != nullptr;) {
    Reader* next_reader = rotation.next(*next);
    write(*now, *next, reader->values, gradient.data.data);
    reader = next_reader;
    std::swap(now, next);
  }
  write_ragged(readers, gradient);
}

}  // namespace zen
