// Processors with AVX2 also count bits with one instruction, where others need a dozen.
#include "core/bits_kernels.h"

#if defined(__x86_64__)

#include "core/avx2_target.h"

ZEN_BEGIN_AVX2
namespace zen {

uint64_t count_ones_avx2(const uint64_t* words, uint64_t count) {
  uint64_t ones = 0;
  for (uint64_t i = 0; i < count; ++i)
    ones += static_cast<uint64_t>(__builtin_popcountll(words[i]));
  return ones;
}

}  // namespace zen
ZEN_END_AVX2

#else

namespace zen {

uint64_t count_ones_avx2(const uint64_t* words, uint64_t count) {
  return count_ones_scalar(words, count);
}

}  // namespace zen

#endif
