#include "core/decode_write.h"

#include <string>

#include "core/bits.h"
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

// Word numbers of the slots set in `present`; `first` is the slot of bit 0.
int list_words(const Shard& shard, uint64_t first, uint64_t present, uint64_t* words) {
  int count = 0;
  for (; present != 0; present &= present - 1)
    words[count++] = shard.word(first + static_cast<uint64_t>(std::countr_zero(present)));
  return count;
}

}  // namespace

WriteWords write_words_scalar(DType dtype) {
  return with_type(dtype, []<class T>(T) -> WriteWords { return write_words<ScalarWords, T>; });
}

void decode_write(const OpenMessage& message, const Shard& shard, const Gradient& gradient,
                  Isa isa) {
  check(message, shard, gradient);
  if (shard.slots == 0) return;
  const WriteWords scalar = write_words_scalar(gradient.dtype);
  const WriteWords fast = isa == Isa::avx2 ? write_words_avx2(gradient.dtype) : scalar;
  WriteStream stream{message.mask_list(), message.values, message.readable_end(),
                     gradient.data.data};
  const uint64_t ragged_slot =
      shard.last_slot_elements() < kWordElems ? shard.slots - 1 : shard.slots;
  uint64_t words[64];
  for (uint64_t first = 0; first < shard.slots; first += 64) {
    uint64_t present = message.presence_bits()[first / 64];
    if (ragged_slot - first < 64) present &= low_bits(ragged_slot - first);
    fast(words, list_words(shard, first, present, words), stream);
  }
  if (ragged_slot < shard.slots && bit_at(message.presence_bits(), ragged_slot)) {
    words[0] = shard.word(ragged_slot);
    scalar(words, 1, stream);
  }
}

}  // namespace zen
