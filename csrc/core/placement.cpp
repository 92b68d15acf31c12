#include "core/placement.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "core/hash.h"

namespace zen {

namespace {

constexpr int kMaxOwners = 65535;                  // an owner number has 16 bits on the wire
constexpr uint64_t kMaxWords = uint64_t{1} << 32;  // a word number has 32 bits in the slot table

// Where part `part` of `parts` nearly equal parts of `total` begins. No overflow: total <= 2^32 and
// part <= 2^31.
uint64_t part_begin(uint64_t total, uint64_t part, uint64_t parts) {
  return total * part / parts;
}

void check(PlacementKind kind, uint64_t numel, int owners) {
  if (owners < 1 || owners > kMaxOwners)
    throw InvalidArgument("a placement has 1 to 65535 owners, not " + std::to_string(owners));
  if (kind == PlacementKind::whole && owners != 1)
    throw InvalidArgument("a `whole` placement has one owner, not " + std::to_string(owners));
  if (Placement::words_for(numel) > kMaxWords)
    throw InvalidArgument("a gradient has at most 2^38 elements, not " + std::to_string(numel) +
                          ": use smaller buckets");
}

}  // namespace

std::shared_ptr<const Placement> Placement::make(PlacementKind kind, uint64_t numel, int owners,
                                                 uint32_t seed) {
  check(kind, numel, owners);
  std::shared_ptr<Placement> placement(new Placement);
  placement->kind_ = kind;
  placement->numel_ = numel;
  placement->words_ = words_for(numel);
  placement->owners_ = owners;
  placement->seed_ = seed;
  placement->first_.resize(static_cast<size_t>(owners) + 1);
  if (kind == PlacementKind::hashed) {
    placement->build_table();
  } else {
    for (size_t owner = 0; owner < placement->first_.size(); ++owner)
      placement->first_[owner] =
          part_begin(placement->words_, owner, static_cast<uint64_t>(owners));
  }
  return placement;
}

// A counting sort of the word numbers by owner: count, then fill in increasing word order.
void Placement::build_table() {
  const uint32_t mix = fmix32(seed_);
  const auto owner_of = [&](uint64_t word) {
    return static_cast<size_t>(owner_of_hash(fmix32(static_cast<uint32_t>(word) ^ mix), owners_));
  };
  for (uint64_t word = 0; word < words_; ++word) ++first_[owner_of(word) + 1];
  for (size_t owner = 1; owner < first_.size(); ++owner) first_[owner] += first_[owner - 1];
  table_.resize(words_);
  std::vector<uint64_t> next(first_.begin(), first_.end() - 1);
  for (uint64_t word = 0; word < words_; ++word)
    table_[next[owner_of(word)]++] = static_cast<uint32_t>(word);
}

int Placement::owner(uint64_t word) const {
  if (kind_ == PlacementKind::hashed)
    return owner_of_hash(hash_word(static_cast<uint32_t>(word), seed_), owners_);
  // The largest j with floor(j * words / owners) <= word.
  return static_cast<int>(((word + 1) * static_cast<uint64_t>(owners_) - 1) / words_);
}

uint64_t Placement::first_slot_from(int owner, uint64_t word) const {
  if (const uint32_t* table = slot_table(owner)) {
    const uint32_t* end = table + slots(owner);
    return static_cast<uint64_t>(std::lower_bound(table, end, word) - table);
  }
  return std::clamp(word, first_[owner], first_[owner + 1]) - first_[owner];
}

Shard Placement::shard(int owner, WordRange range) const {
  Shard shard;
  shard.placement = this;
  shard.owner = owner;
  shard.first_slot = first_slot_from(owner, range.begin);
  shard.slots = std::max(first_slot_from(owner, range.end), shard.first_slot) - shard.first_slot;
  if (shard.slots == 0) return shard;
  // Only the gradient's last word can be short, and it can only be the last slot.
  shard.elements = (shard.slots - 1) * kWordElems + elements(shard.word(shard.slots - 1));
  return shard;
}

std::vector<WordRange> Placement::split(int count) const {
  if (count < 1) throw InvalidArgument("cannot split into " + std::to_string(count) + " ranges");
  const auto parts = static_cast<uint64_t>(count);
  std::vector<WordRange> ranges(parts);
  for (uint64_t part = 0; part < parts; ++part)
    ranges[part] = {part_begin(words_, part, parts), part_begin(words_, part + 1, parts)};
  return ranges;
}

}  // namespace zen
