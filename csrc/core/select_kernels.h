// What select() asks of an instruction set: the interface of select_loop.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
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

// Selects from the words of `range`, all of which have kWordElems elements, dealing them to the
// streams; one owner gets everything.
using SelectWords = void (*)(std::byte* gradient, WordRange range, Deal deal, OwnerStream* streams);

SelectWords select_words_scalar(DType dtype);
SelectWords select_words_avx2(DType dtype);  // REQUIRES: supported(Isa::avx2)

}  // namespace zen
