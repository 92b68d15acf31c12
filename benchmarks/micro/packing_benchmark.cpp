// How close does value packing come to the entropy of the exponents, and to the speed of a copy?
//
//   packing_benchmark [--values N] [--repetitions N] [--gradient NAME=FILE]... [--json FILE]
//
// The bound is a copy of the raw values in the same run and with as many threads: pack reads as
// much and writes less, unpack the other way round. Shares are raw bytes over time for both. A
// gradient file holds float32 values; its zeros are left out, as a sparse message does, and it is
// repeated to the wanted length. Answers are checked before anything is timed; copy, pack and
// unpack take turns, medians count. Times are processor times of the slowest thread, so other
// programs matter less.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "benchmark.h"
#include "core/value_packing.h"
#include "core/value_packing_chunk.h"
#include "result_rows.h"
#include "timing.h"

namespace zen::bench {
namespace {

using Bytes = std::vector<std::byte>;

struct Options {
  size_t values = size_t{32} << 20;
  int repetitions = 9;
  std::vector<std::pair<std::string, std::string>> gradients;
  std::string json = "runs/codec.json";
};

struct Input {
  std::string name;
  std::vector<float> values;
};

struct Row {
  std::string operation, pattern;
  DType dtype;
  int threads;
  double seconds, copy_seconds;
  size_t bytes, packed_bytes;
  double entropy_bytes;
};

// Layers of 1,024 normally distributed values whose sizes differ up to a thousandfold.
Input layers(size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> decades(-7, -4);
  std::vector<float> some(1 << 20);
  for (float& x : some) x = normal(random);
  Input input{"layers", std::vector<float>(count)};
  for (size_t first = 0; first < count; first += 1024) {
    const float scale = std::pow(10.0f, decades(random));
    const size_t from = random() % (some.size() - 1024);
    for (size_t elem = first; elem < std::min(first + 1024, count); ++elem)
      input.values[elem] = some[from + elem - first] * scale;
  }
  return input;
}

Input read_gradient(const std::string& name, const std::string& path, size_t count) {
  std::ifstream file(path, std::ios::binary);
  Input input{name, {}};
  for (float x; file.read(reinterpret_cast<char*>(&x), sizeof x);)
    if (x != 0) input.values.push_back(x);
  if (input.values.empty()) throw std::runtime_error("no values in " + path);
  while (input.values.size() < count) {
    const size_t more = std::min(input.values.size(), count - input.values.size());
    input.values.reserve(count);
    std::copy_n(input.values.begin(), more, std::back_inserter(input.values));
  }
  input.values.resize(count);
  return input;
}

Bytes convert(const std::vector<float>& values, DType dtype) {
  Bytes bytes(values.size() * size_of(dtype));
  with_type(dtype, [&]<class T>(T) {
    // Half precision has a small range: loss scaling keeps gradients inside it.
    const float scale = dtype == DType::f16 ? 65536.0f : 1.0f;
    for (size_t elem = 0; elem < values.size(); ++elem) {
      const T value = from_float<T>(values[elem] * scale);
      std::memcpy(bytes.data() + elem * sizeof(T), &value, sizeof(T));
    }
  });
  return bytes;
}

double entropy(const std::vector<size_t>& counts) {
  double total = 0, bits = 0;
  for (const size_t count : counts) total += static_cast<double>(count);
  for (const size_t count : counts)
    if (count != 0)
      bits -= static_cast<double>(count) * std::log2(static_cast<double>(count) / total);
  return bits;
}

// Sign and mantissa, and the entropy of the exponents' distances from their block's largest one and
// of those largest ones.
double entropy_bytes(DType dtype, const Bytes& values) {
  const packing::Split split = packing::split_of(dtype);
  std::vector<size_t> deltas(256), largests(256);
  const size_t count =
      values.size() / size_of(dtype) / packing::kBlockValues * packing::kBlockValues;
  for (size_t first = 0; first < count; first += packing::kBlockValues) {
    uint32_t exponents[packing::kBlockValues], largest = 0;
    for (size_t elem = 0; elem < packing::kBlockValues; ++elem) {
      uint32_t bits = 0;
      std::memcpy(&bits, values.data() + (first + elem) * size_of(dtype), size_of(dtype));
      exponents[elem] = bits >> split.mantissa_bits & split.exponent_mask();
      largest = std::max(largest, exponents[elem]);
    }
    for (const uint32_t exponent : exponents) ++deltas[largest - exponent];
    ++largests[largest];
  }
  const double fractions = static_cast<double>(count) * (split.mantissa_bits + 1);
  return (fractions + entropy(deltas) + entropy(largests)) / 8;
}

// The part of the values that one thread copies, packs and unpacks.
class Part {
 public:
  Part(DType dtype, const std::byte* values, size_t count)
      : dtype_(dtype),
        values_(values),
        count_(count),
        packed_(max_packed_bytes(dtype, count)),
        target_(count * size_of(dtype)) {
    pack();
    unpack();
    if (std::memcmp(target_.data(), values, target_.size()) != 0)
      throw std::runtime_error("wrong answer: unpacked values differ");
  }

  void copy() { std::memcpy(target_.data(), values_, target_.size()); }
  void pack() { packed_bytes_ = pack_values(dtype_, values_, count_, packed_.data()); }
  void unpack() {
    unpack_values(dtype_, std::span<const std::byte>(packed_).first(packed_bytes_), count_,
                  target_.data());
  }
  size_t packed_bytes() const { return packed_bytes_; }

 private:
  DType dtype_;
  const std::byte* values_;
  size_t count_, packed_bytes_ = 0;
  Bytes packed_, target_;
};

// Runs one operation on all parts at once; the slowest thread's processor time.
double time_all(std::vector<Part>& parts, void (Part::*operation)()) {
  std::vector<double> seconds(parts.size());
  const auto run = [&](size_t part) {
    const double begin = thread_seconds();
    (parts[part].*operation)();
    seconds[part] = thread_seconds() - begin;
  };
  std::vector<std::thread> threads;
  for (size_t part = 1; part < parts.size(); ++part) threads.emplace_back(run, part);
  run(0);
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(seconds.begin(), seconds.end());
}

double median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(const Input& input, DType dtype, int threads, int repetitions,
             std::vector<Row>& rows) {
  const Bytes values = convert(input.values, dtype);
  const size_t count = input.values.size();
  const size_t share = count / static_cast<size_t>(threads);
  std::vector<Part> parts;
  for (int part = 0; part < threads; ++part)
    parts.emplace_back(dtype, values.data() + static_cast<size_t>(part) * share * size_of(dtype),
                       share);
  size_t packed = 0;
  for (const Part& part : parts) packed += part.packed_bytes();
  std::vector<double> copy, pack, unpack;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    copy.push_back(time_all(parts, &Part::copy));
    pack.push_back(time_all(parts, &Part::pack));
    unpack.push_back(time_all(parts, &Part::unpack));
  }
  const double bound = entropy_bytes(dtype, values), copy_seconds = median(copy);
  rows.push_back({"pack", input.name, dtype, threads, median(pack), copy_seconds, values.size(),
                  packed, bound});
  rows.push_back({"unpack", input.name, dtype, threads, median(unpack), copy_seconds, values.size(),
                  packed, bound});
  for (const Row& row : {rows[rows.size() - 2], rows.back()})
    std::printf("%-12s %-9s %d  %-7s %8.2f ms  %3.0f%% of copy  %.3f of raw  %.3f of entropy\n",
                row.pattern.c_str(), name_of(dtype), threads, row.operation.c_str(),
                1e3 * row.seconds, 100 * row.copy_seconds / row.seconds,
                static_cast<double>(row.packed_bytes) / static_cast<double>(row.bytes),
                static_cast<double>(row.packed_bytes) / row.entropy_bytes);
}

ResultRow to_result(const Row& row) {
  ResultRow result;
  result.operation = row.operation;
  result.encoding = "packed";
  result.pattern = row.pattern;
  result.dtype = name_of(row.dtype);
  result.density = 1;
  result.threads = row.threads;
  result.seconds = row.seconds;
  result.bytes = static_cast<double>(row.bytes);
  result.entropy_bytes = row.entropy_bytes;
  result.ratio_to_bandwidth = row.copy_seconds / row.seconds;
  result.bandwidth = "copy";
  return result;
}

// The rows, and for each input the packed bytes as a share of the raw ones.
std::vector<ResultRow> to_results(const std::vector<Row>& rows) {
  std::vector<ResultRow> results;
  for (const Row& row : rows) {
    results.push_back(to_result(row));
    if (row.operation != "pack") continue;
    ResultRow size = results.back();
    size.operation = "packed_bytes";
    size.seconds = 0;
    size.bytes = static_cast<double>(row.packed_bytes);
    size.ratio_to_bandwidth = size.bytes / static_cast<double>(row.bytes);
    size.bandwidth = "raw bytes";
    results.push_back(size);
  }
  return results;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    const size_t equals = value.find('=');
    if (name == "--values" && !value.empty()) {
      options.values = std::stoul(value);
    } else if (name == "--repetitions" && !value.empty()) {
      options.repetitions = std::stoi(value);
    } else if (name == "--json" && !value.empty()) {
      options.json = value;
    } else if (name == "--gradient" && equals != std::string::npos) {
      options.gradients.emplace_back(value.substr(0, equals), value.substr(equals + 1));
    } else {
      throw std::runtime_error("unknown or incomplete option " + name +
                               "; see the top of packing_benchmark.cpp");
    }
  }
  return options;
}

void run(const Options& options) {
  std::vector<Input> inputs{layers(options.values)};
  for (const auto& [name, path] : options.gradients)
    inputs.push_back(read_gradient(name, path, options.values));
  std::vector<Row> rows;
  for (const Input& input : inputs)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const int threads : {1, 2}) measure(input, dtype, threads, options.repetitions, rows);
  append_rows(options.json, to_results(rows));
}

}  // namespace
}  // namespace zen::bench

int zen::bench::run_benchmark(int argc, char** argv) {
  run(parse(argc, argv));
  return 0;
}
