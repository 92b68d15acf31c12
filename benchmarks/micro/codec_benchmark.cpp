// How close do the CPU kernels come to what memory allows?
//
//   codec_benchmark [--elements N] [--repetitions N] [--densities D,D] [--dtype NAME]
//                   [--encodings NAME,NAME] [--threads N] [--json FILE]
//
// Every operation is compared with this core's own bandwidth, measured in the same run:
//   select_encode  bytes of the gradient over time, against reading it
//   merge          cache lines of the messages read and written over time, against copying
//   decode_write   cache lines of the messages and of the gradient over time, against copying
//   open           bytes of the message over time, against reading it; and its share of the time of
//                  decoding, which is open and decode_write together
// A copy counts each line read and each line written. A line of the gradient that is written in
// part counts once although it has to be fetched first, so half of copy bandwidth is all that
// memory allows where most lines are such. With several threads each works on a gradient of its
// own, all of them together as large as one thread's, against the bandwidth of as many threads.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "benchmark.h"
#include "codec_scenario.h"
#include "core/buffer_pool.h"
#include "core/cpu_features.h"
#include "result_rows.h"
#include "synthetic.h"
#include "timing.h"

namespace zen::bench {
namespace {

struct Encoder {
  const char* name;
  Choice choice;
};

constexpr Encoder kEncoders[] = {{"words", Choice::words},      {"positions", Choice::positions},
                                 {"bitmap", Choice::bitmap},    {"coo", Choice::coo},
                                 {"blocks", Choice::blocks},    {"dense", Choice::dense},
                                 {"cheapest", Choice::cheapest}};

struct Options {
  uint64_t elements = uint64_t{32} << 20;
  int repetitions = 5;
  std::string json = "runs/codec.json";
  std::vector<DType> dtypes{DType::f32, DType::bf16};
  std::vector<double> densities{0.001, 0.01, 0.05, 0.2};
  std::vector<int> threads{1, 2};
  std::vector<Encoder> encoders{std::begin(kEncoders), std::end(kEncoders)};
};

using Scenario = std::vector<std::unique_ptr<Inputs>>;  // one for each thread

Scenario make_scenario(DType dtype, const Pattern& pattern, double density, int threads,
                       const Options& options, const Allocate& allocate) {
  Scenario scenario;
  const uint64_t elements =
      options.elements / static_cast<uint64_t>(threads) / kRowElems * kRowElems;
  for (uint64_t thread = 0; thread < static_cast<uint64_t>(threads); ++thread)
    scenario.push_back(
        std::make_unique<Inputs>(dtype, pattern, density, elements, thread, allocate));
  return scenario;
}

// The tasks of all threads, task by task.
std::vector<Task> together(const std::vector<std::vector<Task>>& by_thread) {
  std::vector<Task> tasks;
  for (size_t task = 0; task < by_thread[0].size(); ++task) {
    std::vector<Task> parts;
    for (const auto& of_thread : by_thread) parts.push_back(of_thread[task]);
    tasks.push_back(on_all_threads(parts));
  }
  return tasks;
}

ResultRow row_of(const Task& task, const ResultRow& base) {
  ResultRow row = base;
  row.operation = task.operation;
  row.encoding = task.encoding;
  row.seconds = task.median();
  row.bytes = static_cast<double>(task.bytes);
  row.bandwidth = task.bandwidth;
  return row;
}

// Rows of the probes, or of one encoding with the probes measured beside it.
void measure(Scenario& scenario, const Encoder& encoder, const ResultRow& base, int repetitions,
             std::vector<ResultRow>& rows) {
  std::vector<std::unique_ptr<Messages>> messages;
  std::vector<std::vector<Task>> by_thread;
  double entropy = 0;
  for (const auto& inputs : scenario) {
    messages.push_back(std::make_unique<Messages>(*inputs, encoder.choice, encoder.name));
    std::vector<Task> tasks = inputs->probes();
    for (Task& task : messages.back()->tasks()) tasks.push_back(std::move(task));
    by_thread.push_back(std::move(tasks));
    entropy += inputs->entropy();
  }
  std::vector<Task> tasks = together(by_thread);
  time_interleaved(tasks, repetitions);
  std::map<std::string, const Task*> done;
  for (const Task& task : tasks) done[task.operation] = &task;
  for (const Task& task : tasks) {
    const bool is_probe = task.encoding.empty();
    if (is_probe && encoder.choice != Choice::words) continue;  // once is enough
    ResultRow row = row_of(task, base);
    row.ratio_to_bandwidth = task.rate() / done[task.bandwidth]->rate();
    if (task.operation == "select_encode") row.entropy_bytes = entropy;
    rows.push_back(row);
  }
  if (!done.contains("open")) return;
  ResultRow share = row_of(*done["open"], base);
  share.bandwidth = "decode";
  share.ratio_to_bandwidth = share.seconds / (share.seconds + done["decode_write"]->median());
  rows.push_back(share);
}

void print(const ResultRow& row) {
  std::printf("%-13s %-9s %-7s %-8s %6.2f%% %d thread%s %8.3f ms %7.2f GB/s %6.1f%% of %s\n",
              row.operation.c_str(), row.encoding.c_str(), row.pattern.c_str(), row.dtype.c_str(),
              row.density * 100, row.threads, row.threads == 1 ? " " : "s", row.seconds * 1e3,
              row.bytes / row.seconds * 1e-9, row.ratio_to_bandwidth * 100, row.bandwidth.c_str());
}

std::vector<double> parse_densities(const char* text) {
  std::vector<double> densities;
  for (char* end = nullptr; *text != 0; text = *end == ',' ? end + 1 : end) {
    densities.push_back(std::strtod(text, &end));
    if (end == text || densities.back() <= 0 || densities.back() >= 1)
      throw std::runtime_error("--densities wants numbers between 0 and 1, as in 0.01,0.2");
  }
  return densities;
}

DType parse_dtype(std::string_view name) {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16})
    if (name == name_of(dtype)) return dtype;
  throw std::runtime_error("--dtype wants float32, float16 or bfloat16");
}

std::vector<Encoder> parse_encodings(const std::string& text) {
  std::vector<Encoder> encoders;
  std::istringstream names(text);
  for (std::string name; std::getline(names, name, ',');) {
    const auto* found =
        std::ranges::find_if(kEncoders, [&](const Encoder& known) { return name == known.name; });
    if (found == std::end(kEncoders))
      throw std::runtime_error("--encodings knows no " + name +
                               ", but words, positions, bitmap, coo, blocks, dense and cheapest");
    encoders.push_back(*found);
  }
  return encoders;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--elements")
      options.elements = std::strtoull(value.c_str(), nullptr, 10);
    else if (name == "--repetitions")
      options.repetitions = std::atoi(value.c_str());
    else if (name == "--densities")
      options.densities = parse_densities(value.c_str());
    else if (name == "--dtype")
      options.dtypes = {parse_dtype(value)};
    else if (name == "--encodings")
      options.encoders = parse_encodings(value);
    else if (name == "--threads")
      options.threads = {std::atoi(value.c_str())};
    else if (name == "--json")
      options.json = value;
    else
      throw std::runtime_error("unknown option " + name + "; see the top of codec_benchmark.cpp");
  }
  if (options.repetitions < 1 || options.threads.front() < 1 || options.encoders.empty() ||
      options.elements < kRowElems * static_cast<uint64_t>(options.threads.back()))
    throw std::runtime_error(
        "--repetitions and --threads must be at least 1, --elements 512 for each thread");
  return options;
}

void run(const Options& options) {
  std::printf("%s kernels, %llu elements, %d owners and ranks, median of %d\n",
              name_of(preferred_isa()), static_cast<unsigned long long>(options.elements), kOwners,
              options.repetitions);
  BufferPool pool(size_t{8} << 30);
  for (const int threads : options.threads)
    for (const DType dtype : options.dtypes)
      for (const Pattern& pattern : {uniform_pattern(), row_pattern()})
        for (const double density : options.densities) {
          Scenario scenario =
              make_scenario(dtype, pattern, density, threads, options, pool.allocator());
          ResultRow base;
          base.pattern = pattern.name;
          base.dtype = name_of(dtype);
          base.density = density;
          base.threads = threads;
          std::vector<ResultRow> rows;
          for (const Encoder& encoder : options.encoders)
            measure(scenario, encoder, base, options.repetitions, rows);
          for (const ResultRow& row : rows) print(row);
          append_rows(options.json, rows);
        }
}

}  // namespace
}  // namespace zen::bench

int zen::bench::run_benchmark(int argc, char** argv) {
  run(parse(argc, argv));
  return 0;
}
