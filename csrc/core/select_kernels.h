// What select() asks of an instruction set: the interface of select_loop.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/hash.h"
#include "core/placement.h"

namespace zen {

// Where one owner's lists end.
struct OwnerStream {
  std::byte* values = nullptr;
  uint64_t* masks = nullptr;
  uint64_t* presence = nullptr;
  uint64_t slot = 0;
  uint64_t full_words = 0;
};

// Which stream a word goes to: Placement::owner() of a hashed placement without its branches. One
// owner gets everything.
struct WordHash {
  uint32_t mix = 0;  // fmix32 of the placement's seed
  int owners = 1;

  int owner(uint64_t word) const {
    return owner_of_hash(fmix32(static_cast<uint32_t>(word) ^ mix), owners);
  }
};

// Selects from the words of `range`, all of which have kWordElems elements.
using SelectWords = void (*)(std::byte* gradient, WordRange range, WordHash hash,
                             OwnerStream* streams);

SelectWords select_words_scalar(DType dtype);
SelectWords select_words_avx2(DType dtype);  // REQUIRES: supported(Isa::avx2)

}  // namespace zen
