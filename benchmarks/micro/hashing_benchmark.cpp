// What does the paper's Algorithm 1 cost over its parameters (figure 16), and what does the pass
// that replaces it? Bound: one read of the gradient at this run's own read bandwidth.
//
//   hashing_benchmark [--elements N] [--repetitions N] [--json FILE]
//
// The listed time is lines 2 to 24 of the listing: allocate and clear the memory, insert, collect,
// look the values up. Finding I, which the paper takes as given, is a row of its own; word_select
// and word_select_encode find it themselves, and the latter ends with messages ready to send. Every
// variant is checked to lose nothing before it is timed; repetitions interleave the variants.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "../../tests/cpp/index_patterns.h"
#include "benchmark.h"
#include "core/cpu_device.h"
#include "core/hierarchical_hash.h"
#include "result_rows.h"

namespace zen {
namespace {

constexpr int kPartitions = 16;

struct Options {
  uint32_t elements = 16 << 20;
  int repetitions = 5;
  std::string json = "runs/codec.json";
};

struct Variant {
  std::string name;
  int k = 0;            // 0 where the row is not Algorithm 1
  double r1_ratio = 0;  // parallel slots over non-zeros, all partitions together
  int threads = 1;
  std::function<uint64_t()> run;  // returns something that depends on the work
  std::vector<double> seconds;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double time_once(const std::function<uint64_t()>& run) {
  static volatile uint64_t sink = 0;
  const auto start = std::chrono::steady_clock::now();
  sink = sink + run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Sums all 64-bit words in eight lanes: as fast as memory delivers.
uint64_t read_all(const std::vector<float>& elements) {
  const auto* words = reinterpret_cast<const uint64_t*>(elements.data());
  uint64_t lanes[8] = {};
  for (size_t word = 0; word + 8 <= elements.size() / 2; word += 8)
    for (size_t lane = 0; lane < 8; ++lane) lanes[lane] += words[word + lane];
  return std::accumulate(lanes, lanes + 8, uint64_t{0});
}

uint64_t entries(const std::vector<CooList<uint32_t>>& lists) {
  uint64_t count = 0;
  for (const auto& list : lists) count += list.indices.size();
  return count;
}

HierarchicalHash parameters(const Variant& variant, uint64_t nnz) {
  return make_hierarchical_hash(PartitionHash(kPartitions, 1), 99, variant.k, nnz, variant.r1_ratio,
                                variant.threads);
}

Selection select_words(const Gradient& G, CpuDevice& device) {
  static const auto placement = Placement::make(PlacementKind::hashed, G.numel, kPartitions, 1);
  return device.select(G, *placement, placement->all());
}

uint64_t listed(const Selection& selection) {
  uint64_t count = 0;
  for (const ShardSelection& shard : selection) count += shard.count;
  return count;
}

std::vector<Variant> variants(const Gradient& G, const std::vector<float>& elements,
                              const std::vector<uint32_t>& I, CpuDevice& device) {
  std::vector<Variant> list;
  list.push_back({.name = "read", .run = [&] { return read_all(elements); }, .seconds = {}});
  list.push_back({.name = "nonzero",
                  .run = [&] { return nonzero_indices<uint32_t>(G).size(); },
                  .seconds = {}});
  list.push_back({.name = "word_select",
                  .run = [&] { return listed(select_words(G, device)); },
                  .seconds = {}});
  list.push_back({.name = "word_select_encode",
                  .run =
                      [&] {
                        const auto messages =
                            device.encode(select_words(G, device), Choice::cheapest, Identity{});
                        return messages.back().bytes;
                      },
                  .seconds = {}});
  for (const int threads : {1, 2})
    for (const double r1_ratio : {1.0, 2.0, 4.0})
      for (const int k : {1, 2, 3, 4}) {
        Variant variant{.name = "algorithm_1_k" + std::to_string(k) + "_r1x" +
                                std::to_string(static_cast<int>(r1_ratio)),
                        .k = k,
                        .r1_ratio = r1_ratio,
                        .threads = threads,
                        .run = {},
                        .seconds = {}};
        variant.run = [&, hash = parameters(variant, I.size())] {
          return entries(hierarchical_hash<uint32_t>(I, G, hash));
        };
        list.push_back(std::move(variant));
      }
  return list;
}

void check(const std::vector<Variant>& list, uint64_t nnz) {
  for (const Variant& variant : list)
    if ((variant.k != 0 || variant.name == "word_select") && variant.run() != nnz)
      throw std::runtime_error(variant.name + " does not return every non-zero");
}

void print_row(const Variant& variant, const std::vector<uint32_t>& I, double read_seconds) {
  const double seconds = median(variant.seconds);
  std::printf("| %s | %d | %.1f | %.1f | %.1f |", variant.name.c_str(), variant.threads,
              1e3 * seconds, 1e9 * seconds / static_cast<double>(I.size()), seconds / read_seconds);
  if (variant.k != 0) {
    const auto memory = insert_indices<uint32_t>(I, parameters(variant, I.size()));
    uint64_t serial = 0;
    for (const uint64_t c : memory.c) serial += c - memory.r1;
    std::printf(" %.2f %% | %.1f MB |",
                100.0 * static_cast<double>(serial) / static_cast<double>(I.size()),
                static_cast<double>(memory.x.size() * sizeof(uint32_t)) / 1e6);
  } else {
    std::printf(" - | - |");
  }
  std::printf("\n");
}

std::vector<ResultRow> measure(double density, const Options& options) {
  const IndexSet I = uniform_indices(options.elements, density, 1);
  std::vector<float> elements(options.elements, 0.0f);
  for (const uint32_t index : I) elements[index] = 1.0f;
  const auto bytes = elements.size() * sizeof(float);
  const Gradient G{
      {reinterpret_cast<std::byte*>(elements.data()), bytes, nullptr}, DType::f32, elements.size()};
  CpuDevice device;
  auto list = variants(G, elements, I, device);
  check(list, I.size());
  for (int repetition = 0; repetition < options.repetitions; ++repetition)
    for (Variant& variant : list) variant.seconds.push_back(time_once(variant.run));

  const double read_seconds = median(list[0].seconds);
  std::printf("\n%.1f M elements, density %.3g, %zu non-zeros, %d partitions; read %.1f GB/s\n\n",
              static_cast<double>(options.elements) / 1e6, density, I.size(), kPartitions,
              static_cast<double>(bytes) / read_seconds / 1e9);
  std::printf("| what | threads | ms | ns per non-zero | times one read | serial | memory |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  std::vector<ResultRow> rows;
  for (const Variant& variant : list) {
    print_row(variant, I, read_seconds);
    rows.push_back({.operation = variant.name,
                    .encoding = variant.k                              ? "coo"
                                : variant.name == "word_select_encode" ? "cheapest"
                                                                       : "none",
                    .pattern = "uniform",
                    .dtype = "float32",
                    .density = density,
                    .threads = variant.threads,
                    .seconds = median(variant.seconds),
                    .bytes = static_cast<double>(bytes),
                    .entropy_bytes = 0,
                    .ratio_to_bandwidth = read_seconds / median(variant.seconds),
                    .bandwidth = "read"});
  }
  return rows;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int arg = 1; arg < argc; arg += 2) {
    const std::string name = argv[arg];
    if (arg + 1 == argc) throw std::invalid_argument(name + " needs a value");
    const std::string value = argv[arg + 1];
    if (name == "--elements") {
      options.elements = static_cast<uint32_t>(std::stoul(value));
    } else if (name == "--repetitions") {
      options.repetitions = std::max(1, std::stoi(value));
    } else if (name == "--json") {
      options.json = value;
    } else {
      throw std::invalid_argument("unknown option " + name +
                                  "; known: --elements, --repetitions, --json");
    }
  }
  return options;
}

}  // namespace
}  // namespace zen

int zen::bench::run_benchmark(int argc, char** argv) {
  const Options options = parse(argc, argv);
  for (const double density : {0.01, 0.05}) append_rows(options.json, measure(density, options));
  return 0;
}
