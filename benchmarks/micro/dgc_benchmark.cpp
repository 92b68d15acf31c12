// Does compressing cost more than the memory that it has to touch?
//
// The pass of DGC reads gradient and residual, writes both, and lists what it sends. It is compared
// with a loop that reads two arrays and writes two of the same sizes, in the same run:
//   dgc_select         the pass alone
//   dgc_select_encode  with sampling, and with the messages written
// `bytes` are those of the four streams. What was listed is checked before anything is timed.
//
// dgc_benchmark [--elements N] [--output FILE]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bandwidth.h"
#include "benchmark.h"
#include "core/buffer_pool.h"
#include "core/codec.h"
#include "core/dgc.h"
#include "core/dgc_words_scalar.h"
#include "core/select.h"
#include "result_rows.h"
#include "synthetic.h"
#include "timing.h"

namespace zen::bench {
namespace {

constexpr int kOwners = 4;
constexpr int kRepetitions = 9;

// Reads a and b, writes both. REQUIRES: sizes are multiples of 64.
ZEN_BENCH_WIDE void read_two_write_two(std::byte* a, size_t a_bytes, std::byte* b, size_t b_bytes) {
  using Vector __attribute__((vector_size(32), may_alias)) = uint64_t;
  auto* x = reinterpret_cast<Vector*>(a);
  auto* y = reinterpret_cast<Vector*>(b);
  const size_t steps = b_bytes / 64, ratio = b_bytes / a_bytes;
  for (size_t i = 0; i < steps; ++i) {
    const Vector first = y[2 * i], second = y[2 * i + 1];
    if (ratio == 1) {
      y[2 * i] = first ^ x[2 * i];
      y[2 * i + 1] = second ^ x[2 * i + 1];
      x[2 * i] = x[2 * i + 1] = Vector{};
    } else {
      y[2 * i] = first ^ x[i];
      y[2 * i + 1] = second ^ x[i];
      x[i] = Vector{};
    }
  }
}

template <class T>
void fill_normal(T* elements, uint64_t numel, uint64_t seed) {
  SplitMix64 random(seed);
  for (uint64_t elem = 0; elem < numel; elem += 2) {
    const double radius = std::sqrt(-2 * std::log(random.uniform()));
    const double angle = 6.283185307179586 * random.uniform();
    elements[elem] = from_float<T>(static_cast<float>(radius * std::cos(angle)));
    elements[elem + 1] = from_float<T>(static_cast<float>(radius * std::sin(angle)));
  }
}

// Magnitudes of a standard normal number above it have the probability `share`.
float normal_threshold(double share) {
  double low = 0, high = 10;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::sqrt(2)) > share ? low : high) = middle;
  }
  return static_cast<float>(low);
}

class Scenario {
 public:
  Scenario(DType dtype, uint64_t numel, double density, const Allocate& allocate)
      : dtype_(dtype),
        numel_(numel),
        density_(density),
        allocate_(allocate),
        placement_(Placement::make(PlacementKind::hashed, numel, kOwners, 1)),
        gradient_(allocate(numel * size_of(dtype))),
        residual_(allocate(numel * 4)),
        original_gradient_(allocate(gradient_.bytes)),
        original_residual_(allocate(residual_.bytes)) {
    with_type(dtype, [&]<class T>(T) {
      fill_normal(reinterpret_cast<T*>(original_gradient_.data), numel, 1);
    });
    fill_normal(reinterpret_cast<float*>(original_residual_.data), numel, 2);
    check();
  }

  std::vector<ResultRow> measure() {
    std::vector<double> bound, select, encode;
    for (int repetition = -1; repetition < kRepetitions; ++repetition) {
      const double seconds[] = {timed([&] {
                                  read_two_write_two(gradient_.data, gradient_.bytes,
                                                     residual_.data, residual_.bytes);
                                }),
                                timed([&] { pass(false); }), timed([&] { pass(true); })};
      if (repetition < 0) continue;
      bound.push_back(seconds[0]);
      select.push_back(seconds[1]);
      encode.push_back(seconds[2]);
    }
    return {row("read_two_write_two", bound, bound), row("dgc_select", select, bound),
            row("dgc_select_encode", encode, bound)};
  }

 private:
  double timed(const std::function<void()>& run) {
    copy_all(original_gradient_.data, gradient_.data, gradient_.bytes);
    copy_all(original_residual_.data, residual_.data, residual_.bytes);
    const double begin = thread_seconds();
    run();
    return thread_seconds() - begin;
  }

  // Returns how many elements were listed.
  uint64_t pass(bool sampled_and_encoded) {
    DgcPass pass;
    pass.residual = residual_.data;
    // Gradient and residual are normal numbers, so their sum is one of variance two.
    pass.threshold = magnitude_bits(normal_threshold(density_) * std::sqrt(2.0f));
    DgcSamples samples{{}, {}, stride_of_ratio(0.01)};
    DgcSampler sampler(samples, 1, samples.stride, 1, {{0, numel_, 0, true}});
    if (sampled_and_encoded) pass.sampler = &sampler;
    Selection selection = dgc_select({gradient_, dtype_, numel_, nullptr}, *placement_,
                                     placement_->all(), pass, allocate_);
    uint64_t listed = 0;
    for (ShardSelection& shard : selection) {
      listed += shard.count;
      if (sampled_and_encoded) encode(std::move(shard), Choice::cheapest, {}, allocate_);
    }
    return listed;
  }

  void check() {
    copy_all(original_gradient_.data, gradient_.data, gradient_.bytes);
    copy_all(original_residual_.data, residual_.data, residual_.bytes);
    const double share = static_cast<double>(pass(false)) / static_cast<double>(numel_);
    if (std::abs(share / density_ - 1) > 0.05)
      throw std::runtime_error("wrong answer: listed " + std::to_string(share) +
                               " of the elements");
  }

  ResultRow row(const char* operation, std::vector<double>& seconds, std::vector<double>& bound) {
    const auto median = [](std::vector<double>& values) {
      std::sort(values.begin(), values.end());
      return values[values.size() / 2];
    };
    return {.operation = operation,
            .encoding = "cheapest",
            .pattern = "uniform",
            .dtype = name_of(dtype_),
            .density = density_,
            .threads = 1,
            .seconds = median(seconds),
            .bytes = static_cast<double>(2 * (gradient_.bytes + residual_.bytes)),
            .entropy_bytes = 0,
            .ratio_to_bandwidth = median(bound) / median(seconds),
            .bandwidth = "read_two_write_two"};
  }

  DType dtype_;
  uint64_t numel_;
  double density_;
  Allocate allocate_;
  std::shared_ptr<const Placement> placement_;
  Buffer gradient_, residual_, original_gradient_, original_residual_;
};

}  // namespace

int run_benchmark(int argc, char** argv) {
  uint64_t elements = uint64_t{32} << 20;
  std::string output = "runs/dgc_pass.json";
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--elements")
      elements = std::strtoull(argv[i + 1], nullptr, 10);
    else if (name == "--output")
      output = argv[i + 1];
    else
      throw std::runtime_error("unknown option " + std::string(name) +
                               "; use --elements or --output");
  }
  if (elements == 0 || elements % 64 != 0)
    throw std::runtime_error("--elements must be a positive multiple of 64");
  BufferPool pool(size_t{4} << 30);
  for (DType dtype : {DType::f32, DType::bf16})
    for (double density : {0.01, 0.05}) {
      const std::vector<ResultRow> rows =
          Scenario(dtype, elements, density, pool.allocator()).measure();
      for (const ResultRow& row : rows)
        std::printf("%-20s %-9s %5.1f%% %9.3f ms %8.2f GB/s %6.1f%% of %s\n", row.operation.c_str(),
                    row.dtype.c_str(), row.density * 100, row.seconds * 1e3,
                    row.bytes / row.seconds * 1e-9, row.ratio_to_bandwidth * 100,
                    row.bandwidth.c_str());
      append_rows(output, rows);
    }
  return 0;
}

}  // namespace zen::bench
