// What decode_write() asks of an instruction set: the interface of decode_write_loop.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace zen {

// What is left of a message, and where it goes.
struct WriteStream {
  const uint64_t* masks = nullptr;
  const std::byte* values = nullptr;
  const std::byte* end = nullptr;  // of the memory that may be read
  std::byte* gradient = nullptr;
};

// Writes the next `count` present words of the message to words[0, count) of the gradient, all of
// which have kWordElems elements, and advances the stream.
using WriteWords = void (*)(const uint64_t* words, int count, WriteStream& stream);

WriteWords write_words_scalar(DType dtype);
WriteWords write_words_avx2(DType dtype);  // REQUIRES: supported(Isa::avx2)

}  // namespace zen
