// The pass of DGC over a gradient (core/dgc_pass.h), in two kernels: which elements are candidates
// first; then, when their numbers have been scanned and the budget cuts them off in the order of
// the gradient, what is listed, what stays in residual and momentum.
//
// What is sent stands in the gradient until select_gather() takes it away. Sums and products are
// those of core's dgc_words_scalar.h, one after the other, so that both devices keep the same
// residuals.
//
// Expected bytes for N elements of b bytes with residual and momentum of m bytes each:
//   mark    N * (b + 2 m) read, N / 4 written
//   apply   N * (b + 2 m) and N / 4 read, N * (b + 2 m) and N / 8 written
//   owners  N / 8 read at the places of the owners' words, N / 8 written
//   sample  b + 2 m read for each sample, 8 written
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dgc_pass.h"
#include "core/dtype.h"
#include "cuda/portable.h"
#include "cuda/select.h"

namespace zen::cuda {

// One range of words. `table` is about its words, as slots, and gets the masks of the candidates:
// finite elements that reach the threshold.
struct DgcJob {
  DgcRule rule;
  float gain = 1, send_scale = 1, unscale = 1;
  MagnitudeBits threshold = 1;
  uint64_t budget = 0;
  std::byte* gradient = nullptr;
  std::byte* residual = nullptr;
  std::byte* momentum = nullptr;
  ShardMap map;
  SlotTable table;
  uint64_t* endless = nullptr;  // by word: elements that are not finite, which are always listed
  uint64_t* listed = nullptr;   // by word

  static DgcJob of(const DgcPass& pass, std::byte* gradient);
};

// `memory` is the type of residual and momentum, here and below.
void dgc_mark(DType dtype, DType memory, const DgcJob& job, cudaStream_t stream);

// REQUIRES: the counts of the table have been scanned.
void dgc_apply(DType dtype, DType memory, const DgcJob& job, cudaStream_t stream);

// Fills masks and counts (not yet scanned) of the owners' slots, from a mask for each word.
void dgc_mark_owners(const uint64_t* listed, uint64_t first_word, const SelectJob* jobs,
                     unsigned count, uint64_t most_tiles, cudaStream_t stream);

// Magnitudes of the elements at places[0, count): what each is before the pass, and what it may be
// in the next iteration (core/dgc_sample.h).
void dgc_sample(DType dtype, DType memory, const DgcJob& job, const uint64_t* places,
                uint64_t count, uint32_t* now, uint32_t* next, cudaStream_t stream);

}  // namespace zen::cuda
