#include "core/strawman_hash.h"

#include <atomic>
#include <cmath>
#include <string>

#include "core/error.h"
#include "core/parallel_ranges.h"
#include "core/partition_hash.h"

namespace zen {

template <class Index>
std::vector<CooList<Index>> strawman_hash(std::span<const Index> I, const Gradient& G,
                                          const StrawmanHash& hash) {
  const auto n = static_cast<uint64_t>(hash.n);
  if (hash.n < 1 || hash.r < 1 || hash.r > (uint64_t{1} << 32) / n || hash.threads < 1)
    throw InvalidArgument("strawman hash: n = " + std::to_string(hash.n) + ", r = " +
                          std::to_string(hash.r) + ", threads = " + std::to_string(hash.threads) +
                          "; expected positive numbers with n * r at most 2^32");

  std::vector<Index> x(n * hash.r, 0);  // 0 is a free slot, otherwise an index + 1
  parallel_ranges(I.size(), hash.threads, [&](uint64_t begin, uint64_t end, int) {
    for (const Index index : I.subspan(begin, end - begin)) {
      const uint64_t slot = scale_to(murmur3_x86_32(index, hash.seed), n * hash.r);
      std::atomic_ref<Index>(x[slot]).store(index + 1, std::memory_order_relaxed);
    }
  });

  std::vector<CooList<Index>> lists(n);
  for (uint64_t p = 0; p < n; ++p) {
    for (uint64_t slot = p * hash.r; slot < (p + 1) * hash.r; ++slot)
      if (x[slot] != 0) lists[p].indices.push_back(x[slot] - 1);
    lists[p].values = gather_values(G, std::span<const Index>(lists[p].indices));
  }
  return lists;
}

double expected_strawman_loss(double load) {
  return load > 0 ? 1 + std::expm1(-load) / load : 0;
}

template std::vector<CooList<uint32_t>> strawman_hash(std::span<const uint32_t>, const Gradient&,
                                                      const StrawmanHash&);
template std::vector<CooList<uint64_t>> strawman_hash(std::span<const uint64_t>, const Gradient&,
                                                      const StrawmanHash&);

}  // namespace zen
