// A Tag as the non-negative 31-bit integer that point-to-point operations of c10d take.
//
//   bits 30..20  layout, its low 11 bits: of ranks with different ideas of a bucket, which agree()
//                finds first, 1 in 2048 would match
//   bits 19..8   sequence modulo 4096: far more than the buckets ever in flight
//   bits  7..4   phase
//   bits  3..0   chunk
#pragma once

#include <string>

#include "core/error.h"
#include "schemes/transport.h"

namespace zen {

constexpr int kUnansweredTag = 0xf0;  // phase 15: never packed, so nobody sends under it

// Throws InvalidArgument if the phase or the chunk has no room.
inline int pack(const Tag& tag) {
  if (tag.phase >= 15 || tag.chunk >= 16)
    throw InvalidArgument("phase " + std::to_string(tag.phase) + ", chunk " +
                          std::to_string(tag.chunk) +
                          " do not fit a tag: phases end at 14, chunks at 15");
  return static_cast<int>((tag.layout & 0x7ffu) << 20 | (tag.sequence & 0xfffu) << 8 |
                          uint32_t{tag.phase} << 4 | tag.chunk);
}

}  // namespace zen
