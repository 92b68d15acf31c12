#include "core/select_elements.h"

#include <bit>
#include <vector>

#include "core/bits.h"
#include "core/hierarchical_hash.h"
#include "core/words_scalar.h"

namespace zen {

namespace {

// The set I of the range, ascending; -0.0 becomes +0.0.
std::vector<uint32_t> list_nonzeros(const Gradient& gradient, const Placement& placement,
                                    WordRange range) {
  std::vector<uint32_t> I;
  with_type(gradient.dtype, [&]<class T>(T) {
    T* elements = reinterpret_cast<T*>(gradient.data.data);
    for (uint64_t word = range.begin; word < range.end; ++word) {
      const uint64_t first = word * kWordElems;
      uint64_t mask = ScalarWords::list(elements + first, placement.elements(word));
      for (; mask != 0; mask &= mask - 1)
        I.push_back(static_cast<uint32_t>(first) + static_cast<uint32_t>(std::countr_zero(mask)));
    }
  });
  return I;
}

// Lines 2 to 17 of Algorithm 1. Nothing is lost if a partition has more than its serial memory
// holds: the memory is made larger, once, and filled anew.
HashMemory<uint32_t> hash_nonzeros(const std::vector<uint32_t>& I, const Placement& placement) {
  HierarchicalHash hash = element_hash(placement, I.size());
  try {
    return insert_indices(std::span(I), hash);
  } catch (const SerialMemoryFull& full) {
    hash.r2 = full.required_r2;
    return insert_indices(std::span(I), hash);
  }
}

// A bit for each element of the range that the memory holds.
std::vector<uint64_t> listed_bits(const HashMemory<uint32_t>& memory, WordRange range) {
  std::vector<uint64_t> listed(range.end - range.begin, 0);
  for (const uint32_t stored : memory.x)
    if (stored != 0) set_bit(listed.data(), stored - 1 - range.begin * kWordElems);
  return listed;
}

// Lines 18 to 24: the owner's elements with their values, in the order of I_j.
template <class T>
void extract(const T* elements, const std::vector<uint64_t>& listed, uint64_t first,
             ShardSelection& selection) {
  const Shard& shard = selection.shard;
  auto* presence = reinterpret_cast<uint64_t*>(selection.presence.data);
  auto* masks = reinterpret_cast<uint64_t*>(selection.masks.data);
  T* values = reinterpret_cast<T*>(selection.message.data + kHeaderBytes);
  for (uint64_t slot = 0; slot < shard.slots; ++slot) {
    const uint32_t* members = shard.members + slot * kWordElems;
    const uint64_t count = shard.slot_elements(slot);
    uint64_t mask = 0;
    for (uint64_t elem = 0; elem < count; ++elem)
      mask |= uint64_t{bit_at(listed.data(), members[elem] - first)} << elem;
    if (mask == 0) continue;
    set_bit(presence, slot);
    masks[selection.present_words++] = mask;
    selection.full_words += mask == low_bits(count);
    selection.count += static_cast<uint64_t>(std::popcount(mask));
    for (; mask != 0; mask &= mask - 1) *values++ = elements[members[std::countr_zero(mask)]];
  }
}

}  // namespace

// The paper's best: three hash functions, twice as many parallel slots as non-zeros (its figure
// 16).
HierarchicalHash element_hash(const Placement& placement, uint64_t nonzeros) {
  constexpr int kHashFunctions = 3;
  constexpr double kSlotsPerNonzero = 2;
  return make_hierarchical_hash(PartitionHash(placement.owners(), placement.seed()),
                                placement.seed(), kHashFunctions, nonzeros, kSlotsPerNonzero, 1);
}

Selection select_elements(const Gradient& gradient, const Placement& placement, WordRange range,
                          const Allocate& allocate) {
  const std::vector<uint32_t> I = list_nonzeros(gradient, placement, range);
  const std::vector<uint64_t> listed = listed_bits(hash_nonzeros(I, placement), range);
  Selection selection = empty_selection(gradient.dtype, placement, range, allocate);
  with_type(gradient.dtype, [&]<class T>(T) {
    const T* elements = reinterpret_cast<const T*>(gradient.data.data);
    for (ShardSelection& shard : selection)
      extract(elements, listed, range.begin * kWordElems, shard);
  });
  return selection;
}

}  // namespace zen
