// The bytes that the cost model predicts are those that the schemes send.
#include "core/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cluster.h"
#include "core/design_space.h"
#include "core/look.h"

namespace zen {
namespace {

using namespace scheme_test;

// Of the bytes of all ranks together, for a gradient that was looked at thoroughly: the chance in
// the samples. One rank's also depend on how evenly a hash deals its words.
constexpr double kTolerance = 0.06, kToleranceOfARank = 0.15;
// And of each message: its parts are whole numbers of 8 bytes, and of `omnireduce` of blocks.
double bytes_of_a_message(const Job& job) {
  return job.scheme == "omnireduce" ? 1024 : 24;
}

Sparsity sparsity_of(const Job& job, size_t sampled_blocks, bool thorough = true) {
  std::vector<Look> looks;
  for (const Values& values : job.inputs) {
    scheme_test::Bytes bytes = pack(values, job.dtype);
    looks.push_back(look_at({{bytes.data(), bytes.size(), nullptr}, job.dtype, values.size()},
                            thorough, sampled_blocks));
  }
  return Sparsity(std::move(looks));
}

Prediction prediction_of(const Job& job, const Sparsity& sparsity) {
  return predict(shape_of(find_scheme(job.scheme)),
                 {.dtype = job.dtype,
                  .wire = job.wire_dtype.value_or(job.dtype),
                  .chunks = job.chunks,
                  .pack_values = job.pack_values},
                 sparsity);
}

void expect_near(double predicted, double counted, double tolerance, double slack,
                 const std::string& what) {
  const double allowed = tolerance * counted + slack;
  EXPECT_NEAR(predicted, counted, allowed) << what;
}

void expect_predicted(const Job& job, Pattern pattern) {
  const int ranks = static_cast<int>(job.inputs.size());
  ThreadGroup group(ranks);
  run_job(group, job);
  const Prediction prediction = prediction_of(job, sparsity_of(job, 256));
  const double slack = bytes_of_a_message(job) * prediction.messages;
  const std::string what = job.scheme + (job.pack_values ? " packed" : "") + ", " +
                           scheme_test::name_of(pattern) + ", " + std::to_string(job.chunks) +
                           " chunks of " + zen::name_of(job.dtype) + ", ";
  double predicted = 0, counted = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Traffic traffic = group.transport(rank).traffic();
    const auto out = static_cast<double>(traffic.bytes_out);
    const auto in = static_cast<double>(traffic.bytes_in);
    const std::string of_rank =
        what + "rank " + std::to_string(rank) + " of " + std::to_string(ranks);
    expect_near(prediction.bytes_out[rank], out, kToleranceOfARank, slack, of_rank + " out");
    expect_near(prediction.bytes_in[rank], in, kToleranceOfARank, slack, of_rank + " in");
    predicted += prediction.bytes_out[rank];
    counted += out;
  }
  expect_near(predicted, counted, kTolerance, slack, what + std::to_string(ranks) + " ranks");
}

TEST(Prediction, bytes_are_those_that_every_scheme_sends) {
  uint64_t seed = 1;
  for (const int ranks : {2, 3, 4, 8})
    for (const Pattern pattern :
         {Pattern::zeros, Pattern::scattered_thin, Pattern::scattered, Pattern::half,
          Pattern::dense, Pattern::popular_rows, Pattern::one_range}) {
      const Inputs inputs = make_inputs(pattern, ranks, 100003, DType::f32, ++seed);
      for (const Scheme& scheme : schemes()) {
        Job job{.scheme = std::string(scheme.name),
                .inputs = inputs,
                .divisor = static_cast<float>(ranks),
                .chunks = ranks == 3 ? 1 : 4};
        expect_predicted(job, pattern);
        if (!scheme.packs_values || pattern == Pattern::half) continue;
        job.pack_values = true;
        expect_predicted(job, pattern);
      }
    }
}

// A glance counts one block of 16, and fewer blocks are sampled with more ranks.
TEST(Prediction, a_glance_at_a_dense_gradient_is_nearly_as_good) {
  const Inputs inputs = make_inputs(Pattern::half, 2, 1'000'003, DType::f32, 3);
  const Job job{.scheme = "hierarchical", .inputs = inputs};
  const double exact = prediction_of(job, sparsity_of(job, 64)).busiest_bytes();
  EXPECT_NEAR(prediction_of(job, sparsity_of(job, 64, false)).busiest_bytes(), exact, 0.02 * exact);
}

// Without a look: what is known of DGC, whose selection is nearly even.
TEST(Prediction, counts_alone_are_enough_for_scattered_elements) {
  for (const int ranks : {2, 4, 8}) {
    const Inputs inputs = make_inputs(Pattern::scattered, ranks, 200'003, DType::f32, 9);
    std::vector<double> listed;
    for (const Values& values : inputs)
      listed.push_back(static_cast<double>(count_nonzeros(values)));
    const Sparsity sparsity(200'003, listed, static_cast<double>(count_union(inputs)));
    for (const char* scheme : {"balanced_parallelism", "hierarchical"}) {
      const Job job{.scheme = scheme, .inputs = inputs};
      const double looked = prediction_of(job, sparsity_of(job, 512)).busiest_bytes();
      EXPECT_NEAR(prediction_of(job, sparsity).busiest_bytes(), looked, 0.03 * looked) << scheme;
    }
  }
}

// The paper's equations, in bytes of one rank's coordinate list (section 2.3):
//   (1) balanced parallelism 2 (n - 1) (gamma_n + 1) d M / n, over 2 d M: (n - 1) / n (1 + gamma_n)
//   (2) hierarchy            2 sum gamma_2^(t-1) d M, over 2 d M:         sum gamma_2^(t-1)
TEST(Prediction, equations_1_and_2_of_the_paper_are_a_special_case) {
  const Shape balanced{Travel::push_pull, PlacementKind::hashed, Choice::coo, Choice::coo};
  const Shape hierarchy{Travel::doubling, PlacementKind::whole, Choice::coo, Choice::coo};
  for (const int ranks : {2, 4, 8, 16})
    for (const double repeat : {0.0, 0.05, 0.3, 1.0}) {
      constexpr double kListed = 100'000;
      std::vector<double> densification{1};
      double rest = 1 - repeat;
      for (int k = 2; k <= ranks; ++k, rest *= 1 - repeat)
        densification.push_back(densification.back() + rest);
      const Sparsity sparsity(1 << 24, std::vector<double>(ranks, kListed),
                              kListed * densification.back());
      const Overlap overlap{densification, 1};
      const auto lists = [&](const Shape& shape) {
        return predict(shape, {}, sparsity).busiest_bytes() / (8 * kListed);
      };
      EXPECT_NEAR(lists(balanced), relative_bytes(kBalancedParallelism, overlap), 0.02);
      EXPECT_NEAR(lists(hierarchy), relative_bytes(kHierarchicalCentralisation, overlap), 0.02);
      // Both come down to the same comparison; at n = 2 the hierarchy never loses.
      if (ranks == 2) {
        EXPECT_LE(lists(hierarchy), lists(balanced) * 1.001);
      }
    }
}

TEST(Prediction, work_shows_beside_the_wire_once_for_each_chunk) {
  Prediction prediction{{1000}, {500}, 2, 4, {.scanned = 100}};
  Rates rates{.round = 1, .message = 0.5, .byte = 0.01, .ring_byte = 0.02, .scanned = 0.2};
  const Shape shape{Travel::push_pull, PlacementKind::hashed, Choice::coo, Choice::coo};
  const Seconds seconds = seconds_of(prediction, rates, shape, 4);
  EXPECT_DOUBLE_EQ(seconds.latency, 4);
  EXPECT_DOUBLE_EQ(seconds.wire, 10);
  EXPECT_DOUBLE_EQ(seconds.work, 20);
  EXPECT_DOUBLE_EQ(seconds.total, 4 + 20 + 10.0 / 4);
}

}  // namespace
}  // namespace zen
