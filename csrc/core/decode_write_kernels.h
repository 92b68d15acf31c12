// What decode_write() asks of an instruction set: the interface of decode_write_loop.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace zen {

// Some present slots of one message.
struct WordBatch {
  uint64_t words[64];               // their numbers in the gradient
  const uint64_t* masks = nullptr;  // one for each
  int count = 0;
};

// What is left of a message's values.
struct ValueStream {
  const std::byte* values = nullptr;
  const std::byte* end = nullptr;  // of the memory that may be read
};

// Writes the words of `now`, all of which have kWordElems elements, and advances the values.
// Prefetches those of `next`, which may belong to another message.
using WriteWords = void (*)(const WordBatch& now, const WordBatch& next, ValueStream& stream,
                            std::byte* gradient);

WriteWords write_words_scalar(DType dtype);
WriteWords write_words_avx2(DType dtype);  // REQUIRES: supported(Isa::avx2)

}  // namespace zen
