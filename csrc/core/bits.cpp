#include "core/bits.h"

#include "core/bits_kernels.h"
#include "core/cpu_features.h"

namespace zen {

uint64_t count_ones_scalar(const uint64_t* words, uint64_t count) {
  uint64_t ones = 0;
  for (uint64_t i = 0; i < count; ++i) ones += static_cast<uint64_t>(std::popcount(words[i]));
  return ones;
}

uint64_t count_ones(std::span<const uint64_t> words) {
  static const auto count = preferred_isa() == Isa::avx2 ? count_ones_avx2 : count_ones_scalar;
  return count(words.data(), words.size());
}

}  // namespace zen
