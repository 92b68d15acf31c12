// What the device knows about a shard: one mask per slot, and where the slot's values begin.
//
// The host's ShardSelection lists present slots only, because one thread appends to it in order.
// Here every slot has its entry, so that every thread finds its own: 16 bytes for 64 elements. The
// counts are kept by tile, the slots that one block of threads handles, and become offsets by a
// scan.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bits.h"
#include "core/placement.h"

namespace zen::cuda {

constexpr unsigned kTileSlots = 256;  // also the threads of a block

// What is counted: listed elements, slots that list any, slots that list all they have, and the
// elements of blocks (of the encoding `blocks`) with any.
enum Count : int { kValues, kPresent, kFull, kBlockElements, kCounts };

struct SlotTable {
  uint64_t slots = 0;
  uint64_t* masks = nullptr;    // by slot; 0 if it lists nothing
  uint64_t* offsets = nullptr;  // by slot: values of the slots before it
  uint64_t* counts = nullptr;   // kCounts lists of tiles() + 1

  // The memory must have bytes(slots) bytes.
  static SlotTable at(std::byte* memory, uint64_t slots) {
    auto* words = reinterpret_cast<uint64_t*>(memory);
    return {slots, words, words + slots, words + 2 * slots};
  }
  static constexpr uint64_t tiles(uint64_t slots) { return (slots + kTileSlots - 1) / kTileSlots; }
  static constexpr size_t bytes(uint64_t slots) {
    return 8 * (2 * slots + kCounts * (tiles(slots) + 1));
  }

  constexpr uint64_t tiles() const { return tiles(slots); }

  // Of each tile; after the scan, of all tiles before it, and then of all tiles.
  constexpr uint64_t* count(int which) const {
    return counts + static_cast<uint64_t>(which) * (tiles() + 1);
  }
};

// A Shard as kernels see it.
struct ShardMap {
  Deal deal;  // of a hashed placement
  bool dealt = false;
  uint64_t first_word = 0;  // of the other kinds: slots are consecutive words
  int owner = 0;
  uint64_t first_slot = 0, slots = 0, elements = 0;
  const uint32_t* members = nullptr;  // of hashed elements: the shard's, in device memory

  // `members` is a copy on the device of the shard's.
  static ShardMap of(const Shard& shard, const uint32_t* members) {
    ShardMap map;
    map.dealt = shard.placement->kind() == PlacementKind::hashed;
    map.members = members;
    if (map.dealt) map.deal = shard.placement->deal();
    if (!map.dealt && members == nullptr && shard.slots > 0) map.first_word = shard.word(0);
    map.owner = shard.owner;
    map.first_slot = shard.first_slot;
    map.slots = shard.slots;
    map.elements = shard.elements;
    return map;
  }

  // REQUIRES: a placement of words.
  constexpr uint64_t word(uint64_t slot) const {
    return dealt ? deal.word(owner, first_slot + slot) : first_word + slot;
  }
  constexpr uint64_t element(uint64_t slot, uint64_t elem) const {
    return members != nullptr ? members[slot * kWordElems + elem] : word(slot) * kWordElems + elem;
  }
  constexpr uint64_t slot_elements(uint64_t slot) const {
    return slot + 1 < slots ? kWordElems : elements - slot * kWordElems;
  }
  constexpr uint64_t full_mask(uint64_t slot) const { return low_bits(slot_elements(slot)); }
};

}  // namespace zen::cuda
