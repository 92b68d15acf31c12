#include "core/look.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/hash.h"
#include "core/placement.h"
#include "core/value_packing.h"

namespace zen {

namespace {

constexpr uint64_t kEverything = uint64_t{1} << 32;  // thresholds count hashes of 32 bits
constexpr uint64_t kGlance = kEverything / 16;

// Non-zeros by their bits, -0.0 among the zeros, as select() sees them.
template <class T>
uint64_t mask_of(const T* elements, uint64_t count) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  uint64_t mask = 0;
  for (uint64_t elem = 0; elem < count; ++elem)
    mask |= uint64_t{(std::bit_cast<Bits>(elements[elem]) & kMagnitude) != 0} << elem;
  return mask;
}

// The smallest hashes of present blocks seen so far, as a heap with the largest of them on top.
class Sample {
 public:
  explicit Sample(size_t room) : room_(room) {}

  void offer(uint32_t hash, const SampledBlock& block) {
    if (room_ == 0 || (kept_.size() == room_ && hash >= kept_.front().hash)) return;
    if (kept_.size() == room_) {
      std::ranges::pop_heap(kept_, {}, &Kept::hash);
      kept_.pop_back();
    }
    kept_.push_back({hash, block});
    std::ranges::push_heap(kept_, {}, &Kept::hash);
  }

  // `domain`: blocks with hashes from there on have not been offered.
  void move_to(Look& look, uint64_t domain) {
    std::ranges::sort(kept_, {}, &Kept::hash);
    look.threshold = kept_.size() < room_ ? domain : uint64_t{kept_.back().hash} + 1;
    for (const Kept& kept : kept_) look.sample.push_back(kept.block);
  }

 private:
  struct Kept {
    uint32_t hash;
    SampledBlock block;
  };

  size_t room_;
  std::vector<Kept> kept_;
};

template <class T>
class Scan {
 public:
  Scan(const Gradient& gradient, size_t sampled_blocks)
      : elements_(reinterpret_cast<const T*>(gradient.data.data)),
        numel_(gradient.numel),
        words_(Placement::words_for(gradient.numel)),
        sample_(sampled_blocks) {}

  // Blocks whose hashes lie in [from, to).
  void run(uint64_t from, uint64_t to) {
    const uint64_t blocks = (words_ + kBlockWords - 1) / kBlockWords;
    for (uint64_t block = 0; block < blocks; ++block) {
      const uint64_t hash = hash_block(block);
      if (hash < from || hash >= to) continue;
      ++visited_;
      take(block, static_cast<uint32_t>(hash));
    }
  }

  uint64_t present_blocks() const { return present_; }

  Look result(uint64_t domain) {
    Look look;
    look.numel = numel_;
    const uint64_t blocks = (words_ + kBlockWords - 1) / kBlockWords;
    const double scale =
        visited_ > 0 ? static_cast<double>(blocks) / static_cast<double>(visited_) : 1;
    for (int bin = 0; bin < kBins; ++bin) look.bins[bin] = bins_[bin] * scale;
    sample_.move_to(look, domain);
    return look;
  }

 private:
  void take(uint64_t block, uint32_t hash) {
    SampledBlock found{static_cast<uint32_t>(block), {}};
    const uint64_t first = block * kBlockWords;
    bool present = false;
    for (uint64_t i = 0; i < kBlockWords && first + i < words_; ++i) {
      const uint64_t word = first + i, begin = word * kWordElems;
      const uint64_t count = std::min(kWordElems, numel_ - begin);
      const uint64_t mask = mask_of(elements_ + begin, count);
      found.masks[i] = mask;
      if (mask == 0) continue;
      present = true;
      const auto listed = static_cast<uint64_t>(std::popcount(mask));
      bins_[bin_of(word, words_)] +=
          Counts{static_cast<double>(listed), 1, listed == count ? 1.0 : 0, 0};
    }
    if (!present) return;
    ++present_;
    bins_[bin_of(first, words_)].blocks += 1;
    sample_.offer(hash, found);
  }

  const T* elements_;
  uint64_t numel_, words_;
  std::array<Counts, kBins> bins_{};
  uint64_t visited_ = 0, present_ = 0;  // blocks
  Sample sample_;
};

template <class T>
std::vector<T> sampled_values(const T* elements, const std::vector<SampledBlock>& sample) {
  std::vector<T> values;
  for (const SampledBlock& block : sample)
    for (uint64_t i = 0; i < kBlockWords; ++i) {
      const T* word = elements + (block.block * kBlockWords + i) * kWordElems;
      for (uint64_t mask = block.masks[i]; mask != 0; mask &= mask - 1)
        values.push_back(word[std::countr_zero(mask)]);
    }
  return values;
}

// Values are packed in the order of the gradient, as a message holds them.
template <class T>
void try_packing(const T* elements, DType dtype, Look& look) {
  std::vector<SampledBlock> in_order = look.sample;
  std::ranges::sort(in_order, {}, &SampledBlock::block);
  const std::vector<T> values = sampled_values(elements, in_order);
  look.sampled_values = values.size();
  if (values.empty()) return;
  std::vector<std::byte> packed(max_packed_bytes(dtype, values.size()));
  const size_t bytes = pack_values(dtype, reinterpret_cast<const std::byte*>(values.data()),
                                   values.size(), packed.data());
  look.packed_share =
      std::min(1.0, static_cast<double>(bytes) / static_cast<double>(values.size() * sizeof(T)));
}

}  // namespace

uint32_t hash_block(uint64_t block) {
  return fmix32(static_cast<uint32_t>(block) ^ 0x5eed10c5u);
}

Look look_at(const Gradient& gradient, bool thorough, size_t sampled_blocks) {
  return with_type(gradient.dtype, [&]<class T>(T) {
    Scan<T> scan(gradient, sampled_blocks);
    uint64_t domain = kGlance;
    scan.run(0, kGlance);
    if (thorough || scan.present_blocks() < 2 * sampled_blocks) {
      scan.run(kGlance, kEverything);
      domain = kEverything;
    }
    Look look = scan.result(domain);
    try_packing(reinterpret_cast<const T*>(gradient.data.data), gradient.dtype, look);
    return look;
  });
}

}  // namespace zen
