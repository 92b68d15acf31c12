// The kernels of merge_union.h.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/merge_union.h"

#include "core/dtype.h"
#include "core/lane_tables.h"
#include "core/placement.h"
#include "core/words_scalar.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "core/avx2_target.h"

namespace zen {

namespace {

// For four presence bits, where four lanes of 64 bits come from; negative: they become 0.
struct QuadTable {
  alignas(32) std::array<std::array<int32_t, 8>, 16> expand{};
};

constexpr QuadTable make_quad_table() {
  QuadTable table;
  for (unsigned bits = 0; bits < 16; ++bits) {
    int32_t rank = 0;
    for (unsigned lane = 0; lane < 4; ++lane) {
      const bool set = (bits >> lane & 1) != 0;
      table.expand[bits][2 * lane] = set ? 2 * rank : -1;
      table.expand[bits][2 * lane + 1] = set ? 2 * rank + 1 : -1;
      rank += set;
    }
  }
  return table;
}

constexpr QuadTable kQuads = make_quad_table();

}  // namespace
}  // namespace zen

ZEN_BEGIN_AVX2
#include "core/words_avx2.h"

namespace zen {

namespace {

__m256i load4(const uint64_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

// Writes a mask for each of the block's slots.
void expand_masks(uint64_t presence, const uint64_t* masks, const uint64_t* end, uint64_t* out) {
  if (end - masks < std::popcount(presence) + 4) {  // whole vectors would leave the list
    std::fill_n(out, kBlockSlots, uint64_t{0});
    for (uint64_t rest = presence; rest != 0; rest &= rest - 1)
      out[std::countr_zero(rest)] = *masks++;
    return;
  }
  for (int slot = 0; slot < kBlockSlots; slot += 4, presence >>= 4) {
    const uint64_t bits = presence & 15;
    const __m256i from = load4(reinterpret_cast<const uint64_t*>(kQuads.expand[bits].data()));
    const __m256d moved = _mm256_castsi256_pd(_mm256_permutevar8x32_epi32(load4(masks), from));
    _mm256_store_pd(reinterpret_cast<double*>(out + slot),
                    _mm256_blendv_pd(moved, _mm256_setzero_pd(), _mm256_castsi256_pd(from)));
    masks += std::popcount(bits);
  }
}

uint64_t count_elements(const uint64_t* masks, int count) {
  uint64_t elements = 0;
  for (int i = 0; i < count; ++i) elements += static_cast<uint64_t>(std::popcount(masks[i]));
  return elements;
}

// The rank's values of the block, or a copy of them where whole vectors would leave the message.
template <class T>
const std::byte* readable_values(const RankStream& rank, uint64_t index,
                                 std::vector<std::byte>& copy) {
  constexpr std::ptrdiff_t kMost = kBlockSlots * kWordElems * sizeof(T) + kOvershootBytes;
  const std::ptrdiff_t room = rank.end - rank.values;
  if (room >= kMost) return rank.values;
  const size_t bytes = count_elements(rank.masks, std::popcount(rank.presence[index])) * sizeof(T);
  if (room >= static_cast<std::ptrdiff_t>(bytes + kOvershootBytes)) return rank.values;
  copy.resize(bytes + kOvershootBytes);
  std::memcpy(copy.data(), rank.values, bytes);
  return copy.data();
}

// Replaces the masks of `ranks` active ranks by their targets, which have one bit for each sum of
// the block, set if the rank adds to it. Returns the number of sums.
template <size_t ranks>
uint64_t find_targets(UnionBlock& block, size_t first) {
  MaskRow* const rows = block.rows.data() + first;
  uint64_t word[ranks] = {}, part[ranks];
  uint64_t used = 0, done = 0;  // words done: never more than slots, which share their memory
  for (uint64_t rest = block.listed; rest != 0; rest &= rest - 1) {
    const int slot = std::countr_zero(rest);
    const uint64_t listed = block.unions.masks[slot];
    const auto count = static_cast<uint64_t>(std::popcount(listed));
    for (size_t k = 0; k < ranks; ++k) {
      part[k] = _pext_u64(rows[k].masks[slot], listed);
      word[k] |= part[k] << used;
    }
    used += count;
    if (used < 64) continue;
    used -= 64;
    for (size_t k = 0; k < ranks; ++k) {
      rows[k].masks[done] = word[k];
      word[k] = used == 0 ? 0 : part[k] >> (count - used);
    }
    ++done;
  }
  if (used != 0)
    for (size_t k = 0; k < ranks; ++k) rows[k].masks[done] = word[k];
  return 64 * done + used;
}

uint64_t find_targets(UnionBlock& block) {
  constexpr uint64_t (*kSome[])(UnionBlock&, size_t) = {find_targets<1>, find_targets<2>,
                                                        find_targets<3>, find_targets<4>};
  uint64_t sums = 0;
  for (size_t first = 0; first < block.active_count; first += 4)
    sums = kSome[std::min<size_t>(block.active_count - first, 4) - 1](block, first);
  return sums;
}

// 64 sums, in registers.
template <class T>
ZEN_INLINE void sum_targets(UnionBlock& block, size_t word, float* sums) {
  __m256 sum[8];
  for (__m256& part : sum) part = _mm256_set1_ps(-0.0f);
  for (size_t k = 0; k < block.active_count; ++k) {
    uint64_t targets = block.rows[k].masks[word];
    if (targets == 0) continue;  // as if the rows of an embedding were listed
    const T* values = reinterpret_cast<const T*>(block.active[k].values);
    block.active[k].values = reinterpret_cast<const std::byte*>(values + std::popcount(targets));
    if (targets == ~uint64_t{0}) {
      for (int i = 0; i < 8; ++i)
        sum[i] = _mm256_add_ps(sum[i], Avx2Words::load_floats(values + 8 * i));
      continue;
    }
    for (__m256& part : sum) {
      const auto lanes = static_cast<uint8_t>(targets);
      part = _mm256_add_ps(part, Avx2Words::expand_lanes(values, lanes));
      values += std::popcount(lanes);
      targets >>= 8;
    }
  }
  for (int i = 0; i < 8; ++i) _mm256_storeu_ps(sums + 8 * i, sum[i]);
}

// The block of one rank alone.
template <class T>
uint64_t copy_words(ActiveRank& rank, UnionBlock& block, MaskStream& out) {
  const uint64_t* masks = rank.stream->masks;
  const int count = std::popcount(block.listed);
  for (int i = 0; i < count; ++i) out.full_words += masks[i] == ~uint64_t{0};
  out.masks = std::copy_n(masks, count, out.masks);
  const uint64_t elements = count_elements(masks, count);
  const T* values = reinterpret_cast<const T*>(rank.values);
  Avx2Words::widen(values, elements, block.packed);
  rank.values = reinterpret_cast<const std::byte*>(values + elements);
  return elements;
}

// Masks of all slots of the active ranks, and their unions, which are appended to the result.
void spread_masks(UnionBlock& block, MaskStream& out) {
  for (size_t k = 0; k < block.active_count; ++k) {
    const RankStream& rank = *block.active[k].stream;
    expand_masks(rank.presence[block.index], rank.masks, rank.masks_end, block.rows[k].masks);
  }
  __m256i full = _mm256_setzero_si256();
  for (int slot = 0; slot < kBlockSlots; slot += 4) {
    __m256i all = _mm256_setzero_si256();
    for (size_t k = 0; k < block.active_count; ++k)
      all = _mm256_or_si256(all, load4(block.rows[k].masks + slot));
    _mm256_store_si256(reinterpret_cast<__m256i*>(block.unions.masks + slot), all);
    full = _mm256_sub_epi64(full, _mm256_cmpeq_epi64(all, _mm256_set1_epi64x(-1)));
  }
  alignas(32) uint64_t parts[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(parts), full);
  out.full_words += parts[0] + parts[1] + parts[2] + parts[3];
  uint64_t* masks = out.masks;  // a copy: stores to masks cannot change it
  for (uint64_t rest = block.listed; rest != 0; rest &= rest - 1)
    *masks++ = block.unions.masks[std::countr_zero(rest)];
  out.masks = masks;
}

// Many streams are read side by side, each slowly: the processor's own prefetchers lose them at
// every page.
void prefetch_ahead(const void* stream, std::ptrdiff_t bytes) {
  constexpr std::ptrdiff_t kAhead = 2048;
  for (std::ptrdiff_t at = 0; at < bytes; at += 64)
    _mm_prefetch(static_cast<const char*>(stream) + kAhead + at, _MM_HINT_T0);
}

template <class T>
uint64_t sum_block(RankStream* ranks, size_t count, UnionBlock& block, MaskStream& out) {
  block.active_count = 0;
  for (size_t rank = 0; rank < count; ++rank) {
    if (ranks[rank].presence[block.index] == 0) continue;
    const std::byte* values = readable_values<T>(ranks[rank], block.index, block.near_end[rank]);
    block.active[block.active_count++] = {&ranks[rank], values, values};
  }
  uint64_t sums;
  if (block.active_count == 1) {
    sums = copy_words<T>(block.active[0], block, out);
  } else {
    spread_masks(block, out);
    sums = find_targets(block);
    for (size_t word = 0; word * 64 < sums; ++word)
      sum_targets<T>(block, word, block.packed + word * 64);
  }
  for (size_t k = 0; k < block.active_count; ++k) {
    RankStream& rank = *block.active[k].stream;
    const std::ptrdiff_t masks = std::popcount(rank.presence[block.index]);
    const std::ptrdiff_t values = block.active[k].values - block.active[k].begin;
    prefetch_ahead(rank.masks, masks * 8);
    prefetch_ahead(rank.values, values);
    rank.masks += masks;
    rank.values += values;
  }
  return sums;
}

}  // namespace

SumBlock sum_block_avx2(DType dtype) {
  return with_type(dtype, []<class T>(T) -> SumBlock { return sum_block<T>; });
}

}  // namespace zen
ZEN_END_AVX2

#else

namespace zen {

SumBlock sum_block_avx2(DType) {
  return nullptr;
}

}  // namespace zen

#endif
