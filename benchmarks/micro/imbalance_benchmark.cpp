// What does an uneven split over the owners cost on the paper's models, and would smaller words or
// another way of giving words to owners cost less? Isolates load: no gradient is allocated, bytes
// are taken as proportional to non-zeros, and the network as full duplex and otherwise perfect.
//
//   imbalance_benchmark                        the table of docs/paper-algorithms.md
//   imbalance_benchmark --index-sets FILE [N [ROW]]
//                                              stale thresholds (section 3.1) for N owners on
//                                              recorded sets, which are of rows of ROW elements;
//                                              see record_gradients.py
//
// Push ends when the owner that receives most has received; pull when the owner with the largest
// sum has sent it n - 1 times. With m non-zeros on a rank, u in the union and a perfect split both
// take (n-1)/n (m + u), hence   lost = (ingress * m + pull * u) / (m + u) - 1.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "../../tests/cpp/index_sets.h"
#include "benchmark.h"
#include "core/hash.h"
#include "core/imbalance.h"

namespace zen {
namespace {

constexpr uint32_t kUnitElems = 16;  // the smallest word size considered
constexpr int kSeeds = 5;

// Non-zeros in one run of kUnitElems elements.
struct Unit {
  uint32_t number;
  uint32_t nonzeros;
};
using Units = std::vector<Unit>;

struct Workload {
  std::string name;
  std::vector<Units> ranks;  // a sample, or all n
  Units summed;              // over all n ranks: what the owners receive
  Units united;              // the union: what they send
};

double total(const Units& units) {
  double sum = 0;
  for (const Unit& unit : units) sum += unit.nonzeros;
  return sum;
}

// Size-weighted non-zeros per word of `elems` elements, sum m^2 / sum m.
double weighted_unit(const Units& units, uint32_t elems) {
  double squares = 0;
  const uint32_t per_word = elems / kUnitElems;
  for (size_t begin = 0, end = 0; begin < units.size(); begin = end) {
    double word = 0;
    for (; end < units.size() && units[end].number / per_word == units[begin].number / per_word;
         ++end)
      word += units[end].nonzeros;
    squares += word * word;
  }
  return squares / std::max(1.0, total(units));
}

// --- Row-sparse gradients
// -------------------------------------------------------------------------

void add_rows(std::vector<uint32_t>& counts, const IndexSet& rows, uint32_t dim) {
  for (const uint32_t row : rows) {
    const uint64_t begin = uint64_t{row} * dim, end = begin + dim;
    for (uint64_t at = begin; at < end;) {
      const uint64_t stop = std::min(end, (at / kUnitElems + 1) * kUnitElems);
      counts[at / kUnitElems] += static_cast<uint32_t>(stop - at);
      at = stop;
    }
  }
}

Units take_units(std::vector<uint32_t>& counts) {
  Units units;
  for (uint32_t number = 0; number < counts.size(); ++number)
    if (counts[number] != 0) units.push_back({number, counts[number]});
  std::fill(counts.begin(), counts.end(), 0);
  return units;
}

using RowsOfRank = std::function<IndexSet(uint64_t seed)>;

Workload row_workload(const std::string& name, uint32_t rows, uint32_t dim, int n,
                      const RowsOfRank& rows_of_rank) {
  Workload load{.name = name, .ranks = {}, .summed = {}, .united = {}};
  Iteration sets;
  for (int rank = 0; rank < n; ++rank) sets.push_back(rows_of_rank(static_cast<uint64_t>(rank)));
  std::vector<uint32_t> counts((uint64_t{rows} * dim + kUnitElems - 1) / kUnitElems, 0);
  for (size_t rank = 0; rank < 8; ++rank) {
    add_rows(counts, sets[rank], dim);
    load.ranks.push_back(take_units(counts));
  }
  for (const IndexSet& set : sets) add_rows(counts, set, dim);
  load.summed = take_units(counts);
  add_rows(counts, union_of(sets), dim);
  load.united = take_units(counts);
  return load;
}

RowsOfRank zipf_batch(uint32_t rows, double exponent, uint32_t draws) {
  return [law = ZipfRows(rows, exponent), draws](uint64_t seed) { return law.batch(draws, seed); };
}

// Criteo's 26 categorical fields, each with its own Zipf law; the five largest are cut so that all
// rows together are the 13.4 million of the paper's DeepFM.
RowsOfRank criteo_batch(uint32_t samples, uint32_t* rows) {
  std::vector<ZipfRows> laws;
  std::vector<uint32_t> first;
  *rows = 0;
  for (const uint32_t field : {1460,  583,  3800000, 830000, 305, 24,     12517,   633,   3,
                               93145, 5683, 3100000, 3194,   27,  14992,  2030000, 10,    5652,
                               2173,  4,    3000000, 18,     15,  286181, 105,     142572}) {
    laws.emplace_back(field, 1.1);
    first.push_back(*rows);
    *rows += field;
  }
  return [laws, first, samples](uint64_t seed) {
    SplitMix64 random(seed);
    IndexSet drawn;
    for (uint32_t sample = 0; sample < samples; ++sample)
      for (size_t field = 0; field < laws.size(); ++field)
        drawn.push_back(first[field] + laws[field].draw(random));
    return sorted_unique(std::move(drawn));
  };
}

// --- Top-k gradients
// ------------------------------------------------------------------------------

uint32_t binomial(SplitMix64& random, uint32_t trials, double p) {
  const double mean = trials * p, deviation = std::sqrt(mean * (1 - p));
  if (trials > 64 && deviation > 4) {  // close to normal: Box and Muller
    const double normal = std::sqrt(-2 * std::log1p(-random.uniform())) *
                          std::cos(6.283185307179586 * random.uniform());
    return static_cast<uint32_t>(
        std::clamp(std::round(mean + deviation * normal), 0.0, 1.0 * trials));
  }
  uint32_t successes = 0;
  for (uint32_t trial = 0; trial < trials; ++trial) successes += random.uniform() < p;
  return successes;
}

// Selection rate of every 256-element block whose values are exp(sigma N) |N|, for a threshold that
// keeps `density` overall. sigma = 1 hits a third of the blocks at 5 %, as the paper's OPT does.
std::vector<double> block_rates(uint64_t blocks, double sigma, double density, SplitMix64& random) {
  std::vector<double> log_scale(blocks), rates(blocks);
  for (double& value : log_scale)
    value = sigma * std::sqrt(-2 * std::log1p(-random.uniform())) *
            std::cos(6.283185307179586 * random.uniform());
  double low = 0, high = 100;
  for (int step = 0; step < 40; ++step) {
    const double threshold = (low + high) / 2;
    double mean = 0;
    for (uint64_t block = 0; block < blocks; block += 16)  // a sample places the threshold
      mean += std::erfc(threshold * std::exp(-log_scale[block]) / std::sqrt(2.0));
    (mean / static_cast<double>((blocks + 15) / 16) > density ? low : high) = threshold;
  }
  for (uint64_t block = 0; block < blocks; ++block)
    rates[block] = std::erfc(high * std::exp(-log_scale[block]) / std::sqrt(2.0));
  return rates;
}

// All ranks share the block rates (the same layers are hot everywhere) and draw independently.
Workload top_k_workload(const std::string& name, uint64_t numel, double sigma, double density,
                        int n) {
  SplitMix64 random(7);
  const auto rates = block_rates(numel / 256, sigma, density, random);
  const auto draw = [&](uint32_t ranks, bool unite) {
    Units units;
    for (uint32_t number = 0; number < numel / kUnitElems; ++number) {
      const double p = rates[number / (256 / kUnitElems)];
      const uint32_t count = unite ? binomial(random, kUnitElems, 1 - std::pow(1 - p, n))
                                   : binomial(random, kUnitElems * ranks, p);
      if (count != 0) units.push_back({number, count});
    }
    return units;
  };
  Workload load{.name = name, .ranks = {}, .summed = {}, .united = {}};
  for (int sample = 0; sample < 3; ++sample) load.ranks.push_back(draw(1, false));
  load.summed = draw(static_cast<uint32_t>(n), false);
  load.united = draw(1, true);
  return load;
}

// --- Ways to give words to owners
// -----------------------------------------------------------------

struct Split {
  const char* name;
  uint32_t word_elems;
  bool dealt;  // every n consecutive words go to n different owners, from a hashed start
};

constexpr Split kSplits[] = {{"hash 64", 64, false},
                             {"hash 32", 32, false},
                             {"hash 16", 16, false},
                             {"dealt 64", 64, true},
                             {"dealt 16", 16, true}};

uint32_t owner_of(const Split& split, uint32_t word, uint32_t n, uint32_t seed) {
  if (!split.dealt)
    return static_cast<uint32_t>(owner_of_hash(hash_word(word, seed), static_cast<int>(n)));
  const auto start = owner_of_hash(hash_word(word / n, seed), static_cast<int>(n));
  return (word % n + static_cast<uint32_t>(start)) % n;
}

double split_imbalance(const Units& units, const Split& split, int n, uint32_t seed) {
  std::vector<uint64_t> loads(static_cast<size_t>(n), 0);
  const uint32_t per_word = split.word_elems / kUnitElems;
  for (const Unit& unit : units)
    loads[owner_of(split, unit.number / per_word, static_cast<uint32_t>(n), seed)] += unit.nonzeros;
  return imbalance(loads);
}

struct Cost {
  double push = 0, ingress = 0, pull = 0, lost = 0;  // means over seeds
};

Cost cost_of(const Workload& load, const Split& split, int n) {
  Cost cost;
  const double m = total(load.summed) / n, u = total(load.united);
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    double push = 1;
    for (const Units& units : load.ranks)
      push = std::max(push, split_imbalance(units, split, n, seed));
    const double ingress = split_imbalance(load.summed, split, n, seed);
    const double pull = split_imbalance(load.united, split, n, seed);
    cost.push += push / kSeeds;
    cost.ingress += ingress / kSeeds;
    cost.pull += pull / kSeeds;
    cost.lost += ((ingress * m + pull * u) / (m + u) - 1) / kSeeds;
  }
  return cost;
}

void print_costs(const Workload& load, int n) {
  const double m = total(load.summed) / n, u = total(load.united);
  std::printf("| %s | %d | %.0f | %.1f |", load.name.c_str(), n, m, u / m);
  std::printf(" %.3f / %.3f |",
              expected_imbalance(n, total(load.ranks[0]), weighted_unit(load.ranks[0], 64)),
              expected_imbalance(n, u, weighted_unit(load.united, 64)));
  for (const Split& split : kSplits) {
    const Cost cost = cost_of(load, split, n);
    std::printf(" %.3f / %.3f / %.3f: %.1f %% |", cost.push, cost.ingress, cost.pull,
                100 * cost.lost);
  }
  std::printf("\n");
  std::fflush(stdout);
}

void print_table() {
  std::printf(
      "push (Definition 8) / what an owner receives / pull: share of the exchange lost\n\n");
  std::printf("| gradient | n | non-zeros of a rank | union / rank | formula, push / pull |");
  for (const Split& split : kSplits) std::printf(" %s |", split.name);
  std::printf("\n|---|---|---|---|---|---|---|---|---|---|\n");
  for (const int n : {16, 128}) {
    print_costs(row_workload("LSTM embedding, 400k x 1000", 400'000, 1000, n,
                             zipf_batch(60'000, 1.15, 4'000)),
                n);
    print_costs(
        row_workload("NMT embedding, 20k x 512", 20'000, 512, n, zipf_batch(20'000, 1.149, 1'030)),
        n);
    print_costs(row_workload("BERT embedding, 30,522 x 768", 30'522, 768, n,
                             zipf_batch(30'522, 1.031, 456)),
                n);
    uint32_t rows = 0;
    const auto criteo = criteo_batch(1024, &rows);
    print_costs(row_workload("DeepFM embedding, 13.4M x 16", rows, 16, n, criteo), n);
    print_costs(top_k_workload("LLM bucket, 32M, 5 %, scattered", 32 << 20, 0, 0.05, n), n);
    print_costs(top_k_workload("LLM bucket, 32M, 5 %, clustered", 32 << 20, 1, 0.05, n), n);
    print_costs(top_k_workload("DDP bucket, 6.5M, 1 %, clustered", 6'553'600, 1, 0.01, n), n);
  }
}

// --- Stale thresholds
// -----------------------------------------------------------------------------

struct Range {
  double least = 1e300, largest = 0, sum = 0;

  void add(double value) {
    least = std::min(least, value);
    largest = std::max(largest, value);
    sum += value;
  }
};

void print_range(const char* name, const Range& range, size_t count) {
  std::printf("%s: %.2f to %.2f, mean %.2f\n", name, range.least, range.largest,
              range.sum / static_cast<double>(count));
}

void print_stale_thresholds(const std::string& path, int n, uint32_t row) {
  auto iterations = read_index_sets(path);
  if (iterations.size() < 2) throw std::runtime_error(path + " holds fewer than two index sets");
  for (Iteration& iteration : iterations)
    for (IndexSet& set : iteration) set = expand_rows(set, row);
  const IndexSet of_union = thresholds(union_of(iterations[0]), n);
  const IndexSet of_rank = thresholds(iterations[0][0], n);
  const PartitionHash h0(n, 1);
  std::printf("Push / pull, boundaries from iteration 0:\n\n");
  std::printf("| iteration | of all ranks' union | of rank 0 | hash |\n|---|---|---|---|\n");
  Range push[3];
  for (size_t iteration = 0; iteration < iterations.size(); ++iteration) {
    std::printf("| %zu |", iteration);
    const auto print = [&](Range& range, const auto& owner_of) {
      const double found = push_imbalance(iterations[iteration], n, owner_of);
      std::printf(" %.3f / %.3f |", found, pull_imbalance(iterations[iteration], n, owner_of));
      if (iteration != 0) range.add(found);
    };
    print(push[0], [&](uint32_t index) { return owner_by_thresholds(of_union, index); });
    print(push[1], [&](uint32_t index) { return owner_by_thresholds(of_rank, index); });
    print(push[2], h0);
    std::printf("\n");
  }
  std::printf("\nPush from iteration 1 on:\n");
  print_range("boundaries of the union", push[0], iterations.size() - 1);
  print_range("boundaries of rank 0", push[1], iterations.size() - 1);
  print_range("hash", push[2], iterations.size() - 1);
}

}  // namespace
}  // namespace zen

int zen::bench::run_benchmark(int argc, char** argv) {
  if (argc == 1) {
    print_table();
  } else if (argc >= 3 && argc <= 5 && std::strcmp(argv[1], "--index-sets") == 0) {
    print_stale_thresholds(argv[2], argc > 3 ? std::stoi(argv[3]) : 16,
                           argc > 4 ? static_cast<uint32_t>(std::stoul(argv[4])) : 1);
  } else {
    std::fprintf(stderr, "usage: %s [--index-sets FILE [OWNERS [ROW]]]\n", argv[0]);
    return 2;
  }
  return 0;
}
