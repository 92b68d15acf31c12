// Selections made by the plainest code, for tests of everything that reads selections.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <vector>

#include "core/bits.h"
#include "core/codec.h"
#include "core/hash.h"

namespace zen::test {

// Exactly `bytes` bytes, so that a sanitizer sees any access past the end, and never zero by luck.
inline Buffer heap_buffer(size_t bytes) {
  constexpr std::align_val_t kAlign{64};
  auto* data = static_cast<std::byte*>(::operator new(bytes, kAlign));
  std::memset(data, 0xcd, bytes);
  return {data, bytes,
          std::shared_ptr<void>(data, [=](void* at) { ::operator delete(at, kAlign); })};
}

// The value that element `elem` of a test gradient has: its bits never equal a neighbour's.
inline uint32_t value_bits(uint64_t elem) {
  return fmix32(static_cast<uint32_t>(elem) + 1) | 1;
}

using Listed = std::function<bool(uint64_t elem)>;

// Lists the shard's elements for which `listed` holds.
inline ShardSelection select_if(const Shard& shard, DType dtype, const Listed& listed) {
  ShardSelection selection;
  selection.shard = shard;
  selection.dtype = dtype;
  selection.presence = heap_buffer(shard.presence_words() * 8);
  auto* presence = reinterpret_cast<uint64_t*>(selection.presence.data);
  std::fill_n(presence, shard.presence_words(), uint64_t{0});
  std::vector<uint64_t> masks;
  selection.message = heap_buffer(max_message_bytes(shard, dtype, Choice::words));
  std::byte* value = selection.message.data + kHeaderBytes;
  for (uint64_t slot = 0; slot < shard.slots; ++slot) {
    const uint64_t word = shard.word(slot), elements = shard.placement->elements(word);
    uint64_t mask = 0;
    for (uint64_t e = 0; e < elements; ++e) {
      if (!listed(word * kWordElems + e)) continue;
      mask |= uint64_t{1} << e;
      const uint32_t bits = value_bits(word * kWordElems + e);
      std::memcpy(value, &bits, size_of(dtype));
      value += size_of(dtype);
    }
    if (mask == 0) continue;
    set_bit(presence, slot);
    masks.push_back(mask);
    selection.count += static_cast<uint64_t>(std::popcount(mask));
    selection.full_words += mask == low_bits(elements);
  }
  selection.present_words = masks.size();
  selection.masks = heap_buffer(masks.size() * 8);
  if (!masks.empty()) std::memcpy(selection.masks.data, masks.data(), masks.size() * 8);
  return selection;
}

// Pseudo-random choice of about `density` of all elements; the same for the same seed.
inline Listed uniform(double density, uint32_t seed) {
  const auto limit = static_cast<uint64_t>(density * 4294967296.0);
  return [=](uint64_t elem) { return hash_word(static_cast<uint32_t>(elem), seed) < limit; };
}

// Whole rows of `row` elements.
inline Listed rows(double density, uint64_t row, uint32_t seed) {
  return [=, pick = uniform(density, seed)](uint64_t elem) { return pick(elem / row); };
}

}  // namespace zen::test
