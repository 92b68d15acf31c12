// Who owns which word of a gradient. A word is kWordElems consecutive elements (the last one may be
// shorter); an owner's words, in increasing order, are its slots.
//
// Immutable after make(), so one Placement is shared by any number of threads. A hashed placement
// keeps one 32-bit word number per slot: 1 byte per 16 elements, all owners together.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

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
  uint64_t elements = 0;  // 64 per slot, less what the gradient's last word lacks

  uint64_t word(uint64_t slot) const;  // REQUIRES: slot < slots (counted from first_slot)
  uint64_t presence_words() const { return (slots + 63) / 64; }

  // Elements of the last slot: the only one that may hold fewer than kWordElems. REQUIRES: slots >
  // 0.
  uint64_t last_slot_elements() const { return elements - (slots - 1) * kWordElems; }
};

enum class PlacementKind : uint8_t {
  whole,   // one owner holds every word
  ranges,  // owner j holds the j-th of n ranges whose lengths differ by at most one word
  hashed,  // a seeded MurmurHash3 finaliser of the word number picks the owner
};

class Placement {
 public:
  // Throws InvalidArgument if owners is not in [1, 65535], if kind is `whole` with owners != 1, or
  // if numel exceeds 2^38 (2^32 words).
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

  uint64_t slots(int owner) const { return first_[owner + 1] - first_[owner]; }
  int owner(uint64_t word) const;
  uint64_t word(int owner, uint64_t slot) const {  // REQUIRES: slot < slots(owner)
    return kind_ == PlacementKind::hashed ? table_[first_[owner] + slot] : first_[owner] + slot;
  }

  // Word numbers of an owner's slots, ascending; null unless the kind is `hashed`.
  const uint32_t* slot_table(int owner) const {
    return kind_ == PlacementKind::hashed ? table_.data() + first_[owner] : nullptr;
  }

  // The part of `owner`'s slots inside `range`. Shards of adjacent ranges are adjacent.
  Shard shard(int owner, WordRange range) const;

  // `count` word ranges that cover the gradient; lengths differ by at most one word. Throws
  // InvalidArgument if count < 1.
  std::vector<WordRange> split(int count) const;

 private:
  Placement() = default;
  void build_table();
  uint64_t first_slot_from(int owner, uint64_t word) const;  // first slot whose word is >= `word`

  PlacementKind kind_ = PlacementKind::whole;
  uint64_t numel_ = 0, words_ = 0;
  int owners_ = 1;
  uint32_t seed_ = 0;
  std::vector<uint64_t> first_;  // owners + 1 positions into the slot order
  std::vector<uint32_t> table_;  // hashed only: slot order -> word
};

inline uint64_t Shard::word(uint64_t slot) const {
  return placement->word(owner, first_slot + slot);
}

}  // namespace zen
