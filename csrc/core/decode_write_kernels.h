// What decode_write() asks of an instruction set: the interface of decode_write_loop.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace zen {

constexpr int kBatchWords = 64;

// What is left of a message's values.
struct ValueStream {
  const std::byte* values = nullptr;
  const std::byte* end = nullptr;  // of the memory that may be read
};

// Some present words of one or several messages.
struct WordBatch {
  int count = 0;
  uint64_t words[kBatchWords];  // their numbers in the gradient
  uint64_t masks[kBatchWords];
  ValueStream* streams[kBatchWords];  // where their values are, in the order of the batch
};

// Writes the words of `now`, all of which have kWordElems elements, and advances their streams.
// Prefetches those of `next`.
using WriteWords = void (*)(const WordBatch& now, const WordBatch& next, std::byte* gradient);

WriteWords write_words_scalar(DType dtype);
WriteWords write_words_avx2(DType dtype);  // REQUIRES: supported(Isa::avx2)

}  // namespace zen
