#include "core/hierarchical_hash.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/parallel_ranges.h"

namespace zen {

namespace {

using std::to_string;

void check(const HierarchicalHash& hash) {
  if (hash.H.empty()) throw InvalidArgument("Algorithm 1 needs k >= 1 hash functions; H is empty");
  if (hash.r1 < 1 || hash.r1 > uint64_t{1} << 32)
    throw InvalidArgument("r1 = " + to_string(hash.r1) + " slots; expected 1 to 2^32");
  if (hash.threads < 1)
    throw InvalidArgument("threads = " + to_string(hash.threads) + "; expected at least 1");
}

// Lines 6 to 16 without the serial write: true if one of h1 ... hk gave a free slot.
template <class Index>
bool claim_parallel_slot(Index* row, Index index, const HierarchicalHash& hash) {
  for (const uint32_t seed : hash.H) {
    std::atomic_ref<Index> slot(row[scale_to(murmur3_x86_32(index, seed), hash.r1)]);
    Index found = slot.load(std::memory_order_relaxed);
    if (found == 0 && slot.compare_exchange_strong(found, index + 1, std::memory_order_relaxed))
      return true;
  }
  return false;
}

// Lines 8 to 11. Past the end nothing is written, but c goes on counting what r2 should have been.
template <class Index>
void append_serial(HashMemory<Index>& memory, uint32_t p, Index index) {
  std::atomic_ref<uint64_t> counter(memory.c[p]);
  const uint64_t slot = counter.fetch_add(1, std::memory_order_relaxed);
  if (slot < memory.r1 + memory.r2) memory.x[p * (memory.r1 + memory.r2) + slot] = index + 1;
}

template <class Index>
void throw_if_overflowed(const HashMemory<Index>& memory) {
  uint64_t appended = 0, partition = 0;
  uint64_t required = 0;  // an interleaving can at worst send a partition's every index to serial
  for (uint64_t p = 0; p < memory.c.size(); ++p) {
    const uint64_t serial = memory.c[p] - memory.r1;
    const auto parallel = memory.row(static_cast<int>(p)).first(memory.r1);
    const auto free = static_cast<uint64_t>(std::count(parallel.begin(), parallel.end(), Index{0}));
    required = std::max(required, serial + memory.r1 - free);
    if (serial > appended) appended = serial, partition = p;
  }
  throw SerialMemoryFull("serial memory of partition " + to_string(partition) +
                             " is full: " + to_string(appended) +
                             " indices, r2 = " + to_string(memory.r2) + " slots; raise r2 to " +
                             to_string(required) + ", enough under any interleaving of the threads",
                         required);
}

template <class Index>
CooList<Index> extract_list(std::span<const Index> row, const Gradient& G) {
  CooList<Index> list;
  for (const Index stored : row)
    if (stored != 0) list.indices.push_back(stored - 1);
  list.values = gather_values(G, std::span<const Index>(list.indices));
  return list;
}

}  // namespace

double expected_serial_share(double load, int k) {
  if (load <= 0) return 0;
  constexpr int kSteps = 256;  // Runge-Kutta of the fourth order: exact to better than 1e-9
  const double h = load / kSteps;
  const auto slope = [k](double t) { return 1 - std::pow(t, k); };
  double filled = 0;
  for (int step = 0; step < kSteps; ++step) {
    const double a = slope(filled), b = slope(filled + h / 2 * a), c = slope(filled + h / 2 * b),
                 d = slope(filled + h * c);
    filled += h / 6 * (a + 2 * b + 2 * c + d);
  }
  return 1 - filled / load;
}

HierarchicalHash make_hierarchical_hash(PartitionHash h0, uint32_t seed, int k, uint64_t nnz,
                                        double r1_ratio, int threads) {
  if (k < 1) throw InvalidArgument("k = " + to_string(k) + " hash functions; expected at least 1");
  if (!(r1_ratio > 0))
    throw InvalidArgument("r1_ratio = " + to_string(r1_ratio) + "; expected a positive number");
  HierarchicalHash hash{.h0 = h0, .H = {}, .threads = threads};
  for (int i = 1; i <= k; ++i) hash.H.push_back(murmur3_x86_32(static_cast<uint32_t>(i), seed));

  const double mean = static_cast<double>(nnz) / h0.n();
  hash.r1 = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(r1_ratio * mean)));
  // The fullest of n partitions stays within six standard deviations, and so does its serial part.
  const double fullest = mean + 6 * std::sqrt(mean);
  const double serial = fullest * expected_serial_share(fullest / static_cast<double>(hash.r1), k);
  hash.r2 = static_cast<uint64_t>(std::ceil(serial + 6 * std::sqrt(serial))) + 64;
  return hash;
}

template <class Index>
HashMemory<Index> insert_indices(std::span<const Index> I, const HierarchicalHash& hash) {
  check(hash);
  const auto n = static_cast<uint64_t>(hash.h0.n());
  HashMemory<Index> memory{.r1 = hash.r1,
                           .r2 = hash.r2,
                           .x = std::vector<Index>(n * (hash.r1 + hash.r2), 0),
                           .c = std::vector<uint64_t>(n, hash.r1)};
  parallel_ranges(I.size(), hash.threads, [&](uint64_t begin, uint64_t end, int) {
    for (const Index index : I.subspan(begin, end - begin)) {
      const uint32_t p = hash.h0(index);
      if (!claim_parallel_slot(memory.x.data() + p * (hash.r1 + hash.r2), index, hash))
        append_serial(memory, p, index);
    }
  });
  const uint64_t limit = hash.r1 + hash.r2;
  if (std::any_of(memory.c.begin(), memory.c.end(), [&](uint64_t c) { return c > limit; }))
    throw_if_overflowed(memory);
  return memory;
}

template <class Index>
std::vector<CooList<Index>> extract_lists(const HashMemory<Index>& memory, const Gradient& G,
                                          int threads) {
  std::vector<CooList<Index>> lists(memory.c.size());
  parallel_ranges(lists.size(), threads, [&](uint64_t begin, uint64_t end, int) {
    for (uint64_t p = begin; p < end; ++p)
      lists[p] = extract_list(memory.row(static_cast<int>(p)), G);
  });
  return lists;
}

template HashMemory<uint32_t> insert_indices(std::span<const uint32_t>, const HierarchicalHash&);
template HashMemory<uint64_t> insert_indices(std::span<const uint64_t>, const HierarchicalHash&);
template std::vector<CooList<uint32_t>> extract_lists(const HashMemory<uint32_t>&, const Gradient&,
                                                      int);
template std::vector<CooList<uint64_t>> extract_lists(const HashMemory<uint64_t>&, const Gradient&,
                                                      int);

}  // namespace zen
