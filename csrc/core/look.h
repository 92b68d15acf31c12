// A look at one rank's gradient: counts of its non-zeros by place, and a sample of where they are
// that can be laid over the samples of other ranks.
//
// The sample is coordinated: every rank hashes the numbers of blocks alike and keeps the present
// blocks (those with a non-zero) with the smallest hashes. Below the smallest of the ranks'
// thresholds all of them know all their blocks, so unions and overlaps of any set of ranks can be
// counted there exactly, however sparse the gradient is (bottom-k sketches: Cohen and Kaplan 2007).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/counts.h"
#include "core/gradient.h"

namespace zen {

constexpr int kBins = 64;  // equal ranges of words, for skew and for chunks

struct SampledBlock {
  uint32_t block = 0;
  std::array<uint64_t, kBlockWords> masks{};  // a bit for each non-zero
};

struct Look {
  uint64_t numel = 0;
  std::array<Counts, kBins> bins{};
  // Present blocks, by ascending hash; all of this rank with hash_block() < threshold.
  std::vector<SampledBlock> sample;
  uint64_t threshold = 0;  // at most 2^32: every block

  // Packed bytes over raw bytes of the sampled non-zeros; 1 if there are none, or they do not pack.
  double packed_share = 1;
  uint64_t sampled_values = 0;  // that packed_share was found on
};

uint32_t hash_block(uint64_t block);

// Bin of a word. REQUIRES: word < words.
constexpr int bin_of(uint64_t word, uint64_t words) {
  return static_cast<int>(word * kBins / words);
}

// One pass over the gradient, which stays as it is. With `thorough` every block is counted,
// otherwise about one of 16 if those list enough to judge by. Takes `gradient.numel` of float32,
// float16 or bfloat16 in this processor's memory. The sample holds at most `sampled_blocks` blocks.
Look look_at(const Gradient& gradient, bool thorough, size_t sampled_blocks);

}  // namespace zen
