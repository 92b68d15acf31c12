// What decode_write() asks of an instruction set: the interface of decode_write_loop.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/bits.h"
#include "core/dtype.h"

namespace zen {

// What is left of a message.
struct WriteStream {
  const uint64_t* masks = nullptr;
  const std::byte* values = nullptr;
  const std::byte* end = nullptr;  // of the memory that may be read
};

// The present words of all owners in a part of the gradient, by their place in it.
struct WordWindow {
  explicit WordWindow(uint64_t most_words)
      : masks(words_for_bits(most_words) * 64), values(masks.size()) {}

  uint64_t first_word = 0;
  std::vector<uint64_t> masks;  // in groups of 64; 0 where no word is present
  std::vector<const std::byte*> values;
  bool vectors = true;  // whole vectors may be read behind the values of every word
};

// One owner's words of a window.
struct OwnerWords {
  uint64_t blocks = 0;  // a bit for each block of the deal that has one
  int owner = 0, owners = 1;
  const int* first_owners = nullptr;  // of the window's blocks
};

struct WriteKernels {
  // Adds an owner's words to the window and advances the stream.
  void (*gather)(const OwnerWords& words, WriteStream& stream, WordWindow& window);
  // Writes the words, all of which have kWordElems elements, in their order, and empties the
  // window.
  void (*write)(WordWindow& window, std::byte* gradient);
};

WriteKernels write_kernels_scalar(DType dtype);
WriteKernels write_kernels_avx2(DType dtype);  // REQUIRES: supported(Isa::avx2)

}  // namespace zen
