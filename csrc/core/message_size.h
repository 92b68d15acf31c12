// The size of a message that has not been made, from counts that are only estimated.
#pragma once

#include "core/codec.h"
#include "core/counts.h"
#include "core/dtype.h"

namespace zen {

// The part of a gradient that a message is about.
struct PartSize {
  double elements = 0;
  double slots = 0;
};

// Bytes, header included, of a message that lists `listed` of `part` in the encoding that encode()
// would take. `packed_share` is the share of bytes that values keep when they are packed, 1 if they
// are not. Errs by what the counts are wrong, and for packed messages by what a dense message packs
// better or worse than the listed values.
double message_size(const Counts& listed, const PartSize& part, DType dtype, Choice choice,
                    double packed_share = 1);

}  // namespace zen
