#include "core/sparsity.h"

#include <algorithm>
#include <bit>
#include <map>

#include "core/placement.h"

namespace zen {

namespace {

double power(double base, int exponent) {
  double result = 1;
  for (int i = 0; i < exponent; ++i) result *= base;
  return result;
}

// Densification of k ranks any two of which repeat a share p of what the other lists.
double densification_of(double repeat, int ranks) {
  if (repeat < 1e-9) return ranks;
  return (1 - power(1 - repeat, ranks)) / repeat;
}

// The inverse, by halving: densification falls as p grows.
double repeat_of(double densification, int ranks) {
  double low = 0, high = 1;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (densification_of(middle, ranks) > densification ? low : high) = middle;
  }
  return (low + high) / 2;
}

double over(double part, double whole, double otherwise) {
  return whole > 0 ? part / whole : otherwise;
}

// The ratio in a part, drawn towards that of the whole gradient as if the part had been sampled by
// some blocks more: what few blocks say is mostly chance.
double drawn(double together, double apart, double whole_together, double whole_apart,
             double whole_blocks) {
  constexpr double kBlocksMore = 8;
  const double whole = over(whole_together, whole_apart, 1);
  const double more = over(kBlocksMore * whole_apart, whole_blocks, 0);
  return over(together + more * whole, apart + more, whole);
}

// Shares of one word.
void add_word(Counts& counts, uint64_t mask) {
  if (mask == 0) return;
  counts += {static_cast<double>(std::popcount(mask)), 1, mask == ~uint64_t{0} ? 1.0 : 0, 0};
}

}  // namespace

Sparsity::Sparsity(std::vector<Look> looks)
    : ranks_(static_cast<int>(looks.size())), numel_(looks[0].numel), looks_(std::move(looks)) {
  overlay();
  double values = 0, packed = 0;
  for (const Look& look : looks_) {
    values += static_cast<double>(look.sampled_values);
    packed += static_cast<double>(look.sampled_values) * look.packed_share;
  }
  packed_share_ = over(packed, values, 1);
}

Sparsity::Sparsity(uint64_t numel, std::vector<double> listed, double listed_in_sum)
    : ranks_(static_cast<int>(listed.size())), numel_(numel), only_counts_(std::move(listed)) {
  double sum = 0;
  for (const double count : only_counts_) sum += count;
  repeat_ = sum > 0 ? repeat_of(listed_in_sum * ranks_ / sum, ranks_) : 0;
}

double Sparsity::words() const {
  return static_cast<double>(Placement::words_for(numel_));
}

// Everything that any rank sampled below the threshold that all of them share.
void Sparsity::overlay() {
  uint64_t threshold = looks_[0].threshold;
  for (const Look& look : looks_) threshold = std::min(threshold, look.threshold);
  std::map<uint32_t, std::vector<uint64_t>> blocks;
  for (int rank = 0; rank < ranks_; ++rank)
    for (const SampledBlock& block : looks_[rank].sample) {
      if (hash_block(block.block) >= threshold) continue;
      std::vector<uint64_t>& masks = blocks[block.block];
      masks.resize(static_cast<size_t>(ranks_) * kBlockWords);
      std::ranges::copy(block.masks, masks.begin() + rank * static_cast<long>(kBlockWords));
    }
  for (auto& [block, masks] : blocks)
    overlaid_.push_back(
        {over(static_cast<double>(block * kBlockWords), words(), 0), std::move(masks)});
}

Counts Sparsity::alone(int rank, Extent part) const {
  if (looks_.empty()) return scattered(only_counts_[rank], part);
  Counts counts;
  for (int bin = 0; bin < kBins; ++bin) {
    const double begin = std::max(part.begin * kBins, static_cast<double>(bin));
    const double end = std::min(part.end * kBins, bin + 1.0);
    if (begin < end) counts += looks_[rank].bins[bin] * (end - begin);
  }
  return counts;
}

// `elements` in the whole gradient, each anywhere with the same chance.
Counts Sparsity::scattered(double elements, Extent part) const {
  const double share = part.end - part.begin;
  const double density = over(elements, static_cast<double>(numel_), 0);
  const auto present = [&](int unit) { return 1 - power(1 - density, unit); };
  return {elements * share, words() * share * present(kWordElems),
          words() * share * power(density, kWordElems),
          words() / kBlockWords * share * present(kWordElems * kBlockWords)};
}

Sparsity::Ratio Sparsity::overlap(int first, int last, Extent part) const {
  Ratio ratio;
  for (const Overlaid& block : overlaid_) {
    if (block.place < part.begin || block.place >= part.end) continue;
    uint64_t any = 0;
    for (uint64_t i = 0; i < kBlockWords; ++i) {
      uint64_t mask = 0;
      for (int rank = first; rank < last; ++rank) {
        const uint64_t one = block.masks[static_cast<size_t>(rank) * kBlockWords + i];
        add_word(ratio.apart, one);
        mask |= one;
      }
      add_word(ratio.together, mask);
      any |= mask;
    }
    if (any == 0) continue;
    ratio.together.blocks += 1;
    for (int rank = first; rank < last; ++rank) {
      const auto own = block.masks.begin() + rank * static_cast<long>(kBlockWords);
      ratio.apart.blocks +=
          std::any_of(own, own + kBlockWords, [](auto mask) { return mask != 0; });
    }
  }
  return ratio;
}

Counts Sparsity::listed(int first, int last, Extent part) const {
  Counts sum;
  for (int rank = first; rank < last; ++rank) sum += alone(rank, part);
  if (last - first == 1) return capped(sum, part);
  if (looks_.empty()) {
    const double elements = over(sum.elements, (last - first) * (part.end - part.begin), 0);
    return scattered(elements * densification_of(repeat_, last - first), part);
  }
  const Ratio whole = overlap(first, last, {});
  const Ratio here = overlap(first, last, part);
  const auto ratio = [&](double Counts::* unit) {
    return drawn(here.together.*unit, here.apart.*unit, whole.together.*unit, whole.apart.*unit,
                 whole.apart.blocks);
  };
  Counts counts{sum.elements * ratio(&Counts::elements), sum.words * ratio(&Counts::words), 0,
                sum.blocks * ratio(&Counts::blocks)};
  // Words that nobody fills alone can be full together, so this share is of the sum's own words.
  counts.full_words =
      counts.words * drawn(here.together.full_words, here.together.words, whole.together.full_words,
                           whole.together.words, whole.together.blocks);
  return capped(counts, part);
}

// What the range can hold; and whole units where they must be.
Counts Sparsity::capped(Counts counts, Extent part) const {
  const double share = part.end - part.begin;
  counts.elements = std::min(counts.elements, static_cast<double>(numel_) * share);
  counts.words = std::clamp(counts.words, counts.elements / kWordElems, words() * share);
  counts.full_words = std::min(counts.full_words, counts.words);
  counts.blocks = std::clamp(counts.blocks, counts.words / kBlockWords, counts.words);
  return counts;
}

double Sparsity::density() const {
  double sum = 0;
  for (int rank = 0; rank < ranks_; ++rank) sum += listed(rank, rank + 1).elements;
  return over(sum, static_cast<double>(numel_) * ranks_, 0);
}

double Sparsity::density_of_sum() const {
  return over(listed(0, ranks_).elements, static_cast<double>(numel_), 0);
}

double Sparsity::densification(int ranks) const {
  double together = 0, apart = 0;
  for (int first = 0; first + ranks <= ranks_; first += ranks) {
    together += listed(first, first + ranks).elements * ranks;
    for (int rank = first; rank < first + ranks; ++rank) apart += listed(rank, rank + 1).elements;
  }
  return over(together, apart, 1);
}

double Sparsity::skew() const {
  double largest = 0, all = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    double most = 0;
    for (int range = 0; range < ranks_; ++range)
      most = std::max(
          most,
          alone(rank, {static_cast<double>(range) / ranks_, (range + 1.0) / ranks_}).elements);
    largest += most;
    all += alone(rank, {}).elements;
  }
  return over(largest * ranks_, all, 1);
}

}  // namespace zen
