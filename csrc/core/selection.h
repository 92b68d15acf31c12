// The common currency of the library: the listed elements of a gradient, grouped by owner.
// select() and merge() write it, every encoder reads it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "core/dtype.h"
#include "core/message.h"
#include "core/placement.h"

namespace zen {

// The listed elements of one shard. Invariants:
// 1. presence has shard.presence_words() 64-bit words; bit s is set iff slot s lists an element;
//    bits past shard.slots are 0.
// 2. masks has present_words entries, one per set presence bit, in slot order; none is 0; bit e
//    stands for element e of the word.
// 3. values holds `count` values, in slot then element order; count is the popcount of all masks.
// 4. `message` starts with kHeaderBytes of free room, the values follow, and there is room behind
//    them for whichever index encode() appends: values are never copied to become a message.
struct ShardSelection {
  Shard shard;
  DType dtype = DType::f32;
  Buffer message;
  Buffer presence;
  Buffer masks;
  uint64_t count = 0;
  uint64_t present_words = 0;
  uint64_t full_words = 0;  // present words that list all their elements

  const uint64_t* presence_bits() const { return reinterpret_cast<const uint64_t*>(presence.data); }
  const uint64_t* mask_list() const { return reinterpret_cast<const uint64_t*>(masks.data); }
};

using Selection = std::vector<ShardSelection>;  // one entry per owner, in owner order

// Room for everything that `range` can list, presence bits all 0. Entries are slices of three
// shared allocations.
Selection empty_selection(DType dtype, const Placement& placement, WordRange range,
                          const Allocate& allocate);

// Size of ShardSelection::message: header, every element, the `words` index of every slot (no
// other index that encode() prefers is larger), and room for kernels that write whole vectors.
inline size_t selection_capacity(const Shard& shard, DType dtype) {
  constexpr size_t kVectorRoom = 128;
  return kHeaderBytes + shard.elements * size_of(dtype) + 8 * shard.presence_words() +
         8 * shard.slots + kVectorRoom;
}

}  // namespace zen
