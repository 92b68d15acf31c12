// What select, merge and decode_write must do, in the plainest code: lists of (element, value).
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "core/codec.h"
#include "core/cpu_features.h"
#include "core/selection.h"
#include "gradients.h"

namespace zen::test {

// The listed elements of one shard by their number in the gradient, with their bits.
using Lists = std::map<uint64_t, uint32_t>;

// Exactly `bytes` bytes from the heap, full of a pattern that is no valid anything.
inline Buffer heap_buffer(size_t bytes) {
  void* memory = ::operator new(std::max<size_t>(bytes, 1), std::align_val_t{64});
  std::memset(memory, 0xa5, bytes);
  std::shared_ptr<void> owner(memory, [](void* p) { ::operator delete(p, std::align_val_t{64}); });
  return {static_cast<std::byte*>(memory), bytes, owner};
}

inline bool is_zero(DType dtype, uint32_t bits) {
  return dtype == DType::f32 ? bits << 1 == 0 : static_cast<uint16_t>(bits << 1) == 0;
}

inline std::vector<Lists> oracle_select(TestGradient& gradient, const Placement& placement,
                                        WordRange range) {
  std::vector<Lists> lists(static_cast<size_t>(placement.owners()));
  for (uint64_t elem = range.begin * kWordElems;
       elem < std::min(range.end * kWordElems, gradient.numel()); ++elem) {
    if (is_zero(gradient.dtype(), gradient.bits(elem)))
      gradient.set_bits(elem, 0);
    else
      lists[static_cast<size_t>(placement.owner_of_element(elem))][elem] = gradient.bits(elem);
  }
  return lists;
}

struct RankLists {
  DType dtype;
  Lists lists;
};

inline Lists oracle_merge(const std::vector<RankLists>& ranks, DType dtype, float divisor) {
  std::map<uint64_t, float> sums;
  for (const RankLists& rank : ranks)
    for (const auto& [elem, bits] : rank.lists) {
      const float x = from_bits(rank.dtype, bits);
      const auto [sum, is_first] = sums.emplace(elem, x);
      if (!is_first) sum->second += x;
    }
  Lists result;
  for (const auto& [elem, sum] : sums) result[elem] = to_bits(dtype, sum / divisor);
  return result;
}

inline void oracle_decode_write(const Lists& lists, TestGradient& gradient) {
  for (const auto& [elem, bits] : lists) gradient.set_bits(elem, bits);
}

// Reads a selection back, checking its invariants.
inline Lists lists_of(const ShardSelection& selection) {
  const Shard& shard = selection.shard;
  EXPECT_EQ(selection.presence.bytes, shard.presence_words() * 8);
  EXPECT_GE(selection.message.bytes, selection_capacity(shard, selection.dtype));
  const std::byte* values = selection.message.data + kHeaderBytes;
  const uint64_t* mask = selection.mask_list();
  uint64_t full_words = 0;
  Lists lists;
  for (uint64_t slot = 0; slot < shard.presence_words() * 64; ++slot) {
    if ((selection.presence_bits()[slot / 64] >> slot % 64 & 1) == 0) continue;
    EXPECT_LT(slot, shard.slots);
    EXPECT_NE(*mask, 0u) << "slot " << slot;
    uint64_t in_word = 0;
    for (uint64_t elem = 0; elem < 64; ++elem) {
      if ((*mask >> elem & 1) == 0) continue;
      uint32_t bits = 0;
      std::memcpy(&bits, values, size_of(selection.dtype));
      values += size_of(selection.dtype);
      lists[shard.element(slot, elem)] = bits;
      ++in_word;
    }
    if (in_word == shard.slot_elements(slot)) ++full_words;
    ++mask;
  }
  EXPECT_EQ(selection.count, lists.size());
  EXPECT_EQ(selection.present_words, static_cast<uint64_t>(mask - selection.mask_list()));
  EXPECT_EQ(selection.full_words, full_words);
  return lists;
}

// The normal form of a message that lists `lists`; its values end where its memory ends.
inline OpenMessage open_message(const Lists& lists, const Shard& shard, DType dtype) {
  std::vector<uint64_t> masks;
  OpenMessage open;
  open.header.dtype = dtype;
  open.header.owner = static_cast<uint16_t>(shard.owner);
  open.header.count = lists.size();
  open.header.value_bytes = lists.size() * size_of(dtype);
  open.message = heap_buffer(kHeaderBytes + open.header.value_bytes);
  open.presence = heap_buffer(shard.presence_words() * 8);
  std::memset(open.presence.data, 0, open.presence.bytes);
  open.values = open.message.data + kHeaderBytes;
  std::byte* values = open.message.data + kHeaderBytes;
  auto it = lists.begin();
  for (uint64_t slot = 0; slot < shard.slots; ++slot) {
    uint64_t mask = 0;
    for (uint64_t elem = 0; elem < shard.slot_elements(slot) && it != lists.end(); ++elem) {
      if (it->first != shard.element(slot, elem)) continue;
      mask |= uint64_t{1} << elem;
      std::memcpy(values, &it++->second, size_of(dtype));
      values += size_of(dtype);
    }
    if (mask == 0) continue;
    masks.push_back(mask);
    reinterpret_cast<uint64_t*>(open.presence.data)[slot / 64] |= uint64_t{1} << slot % 64;
  }
  open.header.present_words = static_cast<uint32_t>(masks.size());
  open.masks = heap_buffer(masks.size() * 8);
  if (!masks.empty()) std::memcpy(open.masks.data, masks.data(), masks.size() * 8);
  return open;
}

// Equal bits, or both NaN.
inline void expect_same(const Lists& actual, const Lists& expected, DType dtype) {
  ASSERT_EQ(actual.size(), expected.size());
  for (auto a = actual.begin(), e = expected.begin(); a != actual.end(); ++a, ++e) {
    ASSERT_EQ(a->first, e->first);
    if (std::isnan(from_bits(dtype, a->second)) && std::isnan(from_bits(dtype, e->second)))
      continue;
    ASSERT_EQ(a->second, e->second) << "element " << a->first << ": " << from_bits(dtype, a->second)
                                    << " instead of " << from_bits(dtype, e->second);
  }
}

inline void expect_same(const TestGradient& actual, const TestGradient& expected) {
  ASSERT_EQ(actual.numel(), expected.numel());
  for (uint64_t elem = 0; elem < actual.numel(); ++elem)
    ASSERT_EQ(actual.bits(elem), expected.bits(elem)) << "element " << elem;
}

inline std::vector<Isa> supported_isas() {
  std::vector<Isa> isas;
  for (Isa isa : {Isa::scalar, Isa::avx2})
    if (supported(isa)) isas.push_back(isa);
  return isas;
}

}  // namespace zen::test
