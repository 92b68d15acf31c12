// Who owns which word of a gradient. A word is kWordElems consecutive elements (the last one may be
// shorter); an owner's words, in increasing order, are its slots.
//
// The ZEN paper places single elements instead (kind hashed_elements). An owner's elements are then
// a list, ascending, and its slots are kWordElems consecutive entries of the list: messages and
// sums are about slots and cannot tell the difference; select() and decode_write() can.
//
// Immutable after make(), so one Placement is shared by any number of threads. Words are placed by
// arithmetic, without a table that grows with the gradient; only hashed_elements keeps its lists.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/hash.h"
#include "core/index_lists.h"

namespace zen {

constexpr uint64_t kWordElems = 64;  // one presence mask is one 64-bit machine word

struct WordRange {
  uint64_t begin = 0, end = 0;  // half-open, in words
};

class Placement;

// The slots of one owner that lie in one word range: what a single message is about.
struct Shard {
  const Placement* placement = nullptr;
  int owner = 0;
  uint64_t first_slot = 0;
  uint64_t slots = 0;
  uint64_t elements = 0;  // 64 per slot, less what the last slot lacks
  // hashed_elements only: the numbers of all `elements` elements, ascending; first_slot is 0 then.
  const uint32_t* members = nullptr;

  // REQUIRES: slot < slots (counted from first_slot); a placement of words.
  uint64_t word(uint64_t slot) const;
  // Number in the gradient of the slot's element `elem`. REQUIRES: elem < slot_elements(slot).
  uint64_t element(uint64_t slot, uint64_t elem) const {
    return members != nullptr ? members[slot * kWordElems + elem] : word(slot) * kWordElems + elem;
  }
  uint64_t slot_elements(uint64_t slot) const {
    return slot + 1 < slots ? kWordElems : last_slot_elements();
  }
  uint64_t presence_words() const { return (slots + 63) / 64; }

  // Elements of the last slot: the only one that may hold fewer than kWordElems. REQUIRES: slots >
  // 0.
  uint64_t last_slot_elements() const { return elements - (slots - 1) * kWordElems; }
};

enum class PlacementKind : uint8_t {
  whole,            // one owner holds every word
  ranges,           // owner j holds the j-th of n ranges whose lengths differ by at most one word
  hashed,           // words are dealt like cards, each round from a hashed owner: see Deal
  hashed_elements,  // elements are hashed by the paper's h0; see IndexLists. 4 bytes per element
};

// The rule of a hashed placement. A block is `owners` consecutive words; its first word goes to an
// owner that a seeded hash of the block's number picks, the rest to the following owners in turn.
// So slot s of every owner is one word of block s, shares are exact to one word, and the words of a
// block never meet. Compared with a hash for each word this can only remove variance from an
// owner's load: docs/paper-algorithms.md has the argument and the figures.
struct Deal {
  uint32_t mix = 0;  // fmix32 of the placement's seed
  int owners = 1;

  constexpr int first_owner(uint64_t block) const {
    return owner_of_hash(fmix32(static_cast<uint32_t>(block) ^ mix), owners);
  }
  constexpr int owner(uint64_t word) const {
    const auto n = static_cast<uint64_t>(owners);
    return static_cast<int>((word + static_cast<uint64_t>(first_owner(word / n))) % n);
  }
  constexpr uint64_t word(int owner, uint64_t block) const {
    const int turn = owner - first_owner(block);
    return block * static_cast<uint64_t>(owners) +
           static_cast<uint64_t>(turn < 0 ? turn + owners : turn);
  }
};

class Placement {
 public:
  // Throws InvalidArgument if owners is not in [1, 65535], if kind is `whole` with owners != 1, or
  // if numel exceeds 2^38 (2^32 words; 2^32 - 1 elements if they are hashed). Hashing every element
  // takes time: keep such a placement.
  static std::shared_ptr<const Placement> make(PlacementKind kind, uint64_t numel, int owners,
                                               uint32_t seed);

  PlacementKind kind() const { return kind_; }
  uint64_t numel() const { return numel_; }
  uint64_t words() const { return words_; }
  int owners() const { return owners_; }
  uint32_t seed() const { return seed_; }
  WordRange all() const { return {0, words_}; }

  // Words that a gradient of `numel` elements has.
  static constexpr uint64_t words_for(uint64_t numel) {
    return numel / kWordElems + (numel % kWordElems != 0);
  }

  // Elements of `word`: kWordElems, or fewer for the last one. REQUIRES: word < words().
  uint64_t elements(uint64_t word) const {
    return word + 1 < words_ ? kWordElems : numel_ - word * kWordElems;
  }

  int owner_of_element(uint64_t elem) const;  // REQUIRES: elem < numel()

  // Of placements of words: REQUIRES: kind() is not hashed_elements.
  uint64_t slots(int owner) const;
  int owner(uint64_t word) const;
  uint64_t word(int owner, uint64_t slot) const {  // REQUIRES: slot < slots(owner)
    return kind_ == PlacementKind::hashed ? deal_.word(owner, slot)
                                          : first_[static_cast<size_t>(owner)] + slot;
  }

  // How the words are dealt. REQUIRES: the kind is `hashed`.
  const Deal& deal() const { return deal_; }

  // The part of `owner`'s slots inside `range`. Shards of adjacent ranges are adjacent. With hashed
  // elements, slots count from the first of the owner's elements in the range.
  Shard shard(int owner, WordRange range) const;

  // `count` word ranges that cover the gradient; lengths differ by at most one word. Throws
  // InvalidArgument if count < 1.
  std::vector<WordRange> split(int count) const;

 private:
  Placement() = default;
  uint64_t first_slot_from(int owner, uint64_t word) const;  // first slot whose word is >= `word`
  Shard list_shard(int owner, WordRange range) const;        // shard() of hashed elements

  PlacementKind kind_ = PlacementKind::whole;
  uint64_t numel_ = 0, words_ = 0;
  int owners_ = 1;
  uint32_t seed_ = 0;
  Deal deal_;                    // hashed only
  std::vector<uint64_t> first_;  // whole and ranges: owners + 1 words where the ranges begin
  std::unique_ptr<const IndexLists<uint32_t>> lists_;  // hashed_elements only
};

inline uint64_t Shard::word(uint64_t slot) const {
  return placement->word(owner, first_slot + slot);
}

}  // namespace zen
