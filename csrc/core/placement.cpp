#include "core/placement.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "core/hash.h"

namespace zen {

namespace {

constexpr int kMaxOwners = 65535;                  // an owner number has 16 bits on the wire
constexpr uint64_t kMaxWords = uint64_t{1} << 32;  // a block number has 32 bits in the hash

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
  if (kind == PlacementKind::hashed_elements && numel > UINT32_MAX)
    throw InvalidArgument("hashed elements are at most 2^32 - 1, not " + std::to_string(numel) +
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
  if (kind == PlacementKind::hashed) {
    placement->deal_ = {fmix32(seed), owners};
    return placement;
  }
  if (kind == PlacementKind::hashed_elements) {
    placement->lists_ = std::make_unique<IndexLists<uint32_t>>(numel, PartitionHash(owners, seed));
    return placement;
  }
  const auto n = static_cast<uint64_t>(owners);
  for (uint64_t owner = 0; owner <= n; ++owner)
    placement->first_.push_back(part_begin(placement->words_, owner, n));
  return placement;
}

int Placement::owner_of_element(uint64_t elem) const {
  if (kind_ != PlacementKind::hashed_elements) return owner(elem / kWordElems);
  return static_cast<int>(PartitionHash(owners_, seed_)(static_cast<uint32_t>(elem)));
}

uint64_t Placement::slots(int owner) const {
  if (kind_ != PlacementKind::hashed)
    return first_[static_cast<size_t>(owner) + 1] - first_[static_cast<size_t>(owner)];
  const uint64_t blocks = words_ / static_cast<uint64_t>(owners_);  // full ones; a rest may follow
  return blocks + (deal_.word(owner, blocks) < words_);
}

int Placement::owner(uint64_t word) const {
  if (kind_ == PlacementKind::hashed) return deal_.owner(word);
  // The largest j with floor(j * words / owners) <= word.
  return static_cast<int>(((word + 1) * static_cast<uint64_t>(owners_) - 1) / words_);
}

uint64_t Placement::first_slot_from(int owner, uint64_t word) const {
  if (kind_ == PlacementKind::hashed) {
    const uint64_t block = word / static_cast<uint64_t>(owners_);
    return std::min(block + (deal_.word(owner, block) < word), slots(owner));
  }
  const auto j = static_cast<size_t>(owner);
  return std::clamp(word, first_[j], first_[j + 1]) - first_[j];
}

Shard Placement::list_shard(int owner, WordRange range) const {
  const std::span<const uint32_t> list = (*lists_)[owner];
  const auto first_from = [&](uint64_t word) {
    return std::ranges::lower_bound(list, word * kWordElems) - list.begin();
  };
  const auto begin = first_from(range.begin), end = std::max(begin, first_from(range.end));
  Shard shard{.placement = this, .owner = owner, .members = list.data() + begin};
  shard.elements = static_cast<uint64_t>(end - begin);
  shard.slots = words_for(shard.elements);
  return shard;
}

Shard Placement::shard(int owner, WordRange range) const {
  if (kind_ == PlacementKind::hashed_elements) return list_shard(owner, range);
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
