// Every scheme against one oracle: sizes, dtypes, patterns, chunks, both kinds of transport.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "cluster.h"
#include "core/error.h"

namespace zen {
namespace {

using namespace scheme_test;

constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16};
constexpr size_t kSizes[] = {0, 1, 63, 64, 65, 1000, 4097};
constexpr size_t kLargeSize = 65537;
constexpr int kChunks[] = {1, 2, 4, 7};

using Parameters = std::tuple<std::string, bool, int>;  // scheme, ordered transport, ranks

class SchemeTest : public ::testing::TestWithParam<Parameters> {
 protected:
  std::string scheme() const { return std::get<0>(GetParam()); }
  bool ordered() const { return std::get<1>(GetParam()); }
  int ranks() const { return std::get<2>(GetParam()); }

  ThreadGroup group() const {
    return ThreadGroup(ranks(), {.traits = ordered() ? kNcclTraits : kGlooTraits,
                                 .max_delay = std::chrono::microseconds(ranks() < 4 ? 200 : 0),
                                 .seed = 9});
  }

  Job job(Pattern pattern, size_t numel, DType dtype, int chunks, bool mean) const {
    return {.scheme = scheme(),
            .inputs = make_inputs(pattern, ranks(), numel, dtype, numel),
            .dtype = dtype,
            .divisor = mean ? static_cast<float>(ranks()) : 1.0f,
            .chunks = chunks};
  }

  void expect_right(const Job& job, const Answer& answer, Pattern pattern) const {
    SCOPED_TRACE(std::string(scheme_test::name_of(pattern)) + ", " +
                 std::to_string(job.inputs[0].size()) + " elements of " + name_of(job.dtype) +
                 ", " + std::to_string(job.chunks) + " chunks");
    for (int rank = 1; rank < ranks(); ++rank)
      EXPECT_EQ(answer.by_rank[rank], answer.by_rank[0]) << "rank " << rank << " differs";
    EXPECT_EQ(compare_with_oracle(job.inputs, unpack(answer.by_rank[0], job.dtype), job.dtype,
                                  job.divisor, pattern == Pattern::integers),
              "");
    if (!find_scheme(scheme()).has_placement) return;
    for (int rank = 0; rank < ranks(); ++rank) {
      EXPECT_EQ(answer.reports[rank].nonzeros, count_nonzeros(job.inputs[rank]));
      EXPECT_GE(answer.reports[rank].nonzeros_summed, count_union(job.inputs));
      EXPECT_LE(answer.reports[rank].nonzeros_summed, job.inputs[0].size());
      EXPECT_GE(answer.reports[rank].imbalance, 1);
    }
  }
};

// Not every combination, but every pair of size and pattern, with the other axes in rotation.
TEST_P(SchemeTest, answer_is_the_oracles_and_the_same_on_every_rank) {
  size_t turn = static_cast<size_t>(ranks());
  for (const Pattern pattern : kPatterns) {
    std::vector<Job> jobs;
    for (const size_t numel : kSizes) {
      ++turn;
      jobs.push_back(job(pattern, numel, kDTypes[turn % 3], kChunks[turn / 2 % 4], turn % 5 < 3));
      jobs.back().pack_values = turn % 2 == 0;
    }
    ThreadGroup ranks_group = group();
    std::vector<Answer> answers;
    ASSERT_NO_THROW(run_jobs(ranks_group, jobs, answers).rethrow());
    for (size_t j = 0; j < jobs.size(); ++j) expect_right(jobs[j], answers[j], pattern);
  }
}

TEST_P(SchemeTest, answer_does_not_depend_on_the_number_of_chunks) {
  Bytes first;
  for (const int chunks : kChunks) {
    ThreadGroup ranks_group = group();
    const Job one = job(Pattern::popular_rows, 4097, DType::bf16, chunks, true);
    const Answer answer = run_job(ranks_group, one);
    if (first.empty()) first = answer.by_rank[0];
    EXPECT_EQ(answer.by_rank[0], first) << chunks << " chunks";
  }
}

TEST_P(SchemeTest, large_buckets_come_out_right) {
  ThreadGroup ranks_group = group();
  for (const Pattern pattern : {Pattern::popular_rows, Pattern::scattered, Pattern::dense}) {
    Job one = job(pattern, kLargeSize, DType::f32, 4, true);
    for (const bool pack_values : {false, true}) {
      one.pack_values = pack_values;
      expect_right(one, run_job(ranks_group, one), pattern);
    }
  }
}

// docs/numerics.md: schemes that add in the same order agree to the last bit.
TEST(SchemeOrder, schemes_of_one_order_agree_to_the_bit) {
  const std::vector<std::vector<std::string>> families = {
      {"agsparse", "omnireduce", "sparse_ps", "sparse_ps_broadcast", "sparse_ps_scatter_allgather",
       "zen_paper", "zen_paper_coo_pull", "balanced_parallelism"},
      {"sparcml", "sparcml_coo", "hierarchical"}};
  const Inputs inputs = make_inputs(Pattern::half, 7, 4097, DType::f32, 11);
  for (const auto& family : families) {
    ThreadGroup group(7);
    const Bytes first = run_job(group, {.scheme = family[0], .inputs = inputs}).by_rank[0];
    for (const std::string& scheme : family)
      EXPECT_EQ(run_job(group, {.scheme = scheme, .inputs = inputs}).by_rank[0], first) << scheme;
  }
}

// x0 + x1 + x2 + x3 in rank order loses both ones; the tree (x0 + x1) + (x2 + x3) loses one.
TEST(SchemeOrder, order_of_additions_is_the_documented_one) {
  const Inputs inputs = {{16777216}, {1}, {1}, {-16777216}};
  const auto sum_of = [&](const char* scheme) {
    ThreadGroup group(4);
    return unpack(run_job(group, {.scheme = scheme, .inputs = inputs}).by_rank[0], DType::f32)[0];
  };
  EXPECT_EQ(sum_of("balanced_parallelism"), 0);
  EXPECT_EQ(sum_of("hierarchical"), 1);
}

// wire_dtype: to the bit what the gradients would have become as bfloat16, in as many bytes.
TEST(WireDType, float32_gradients_travel_as_their_bfloat16_selves) {
  for (const Scheme& scheme : schemes()) {
    if (!scheme.narrows_values) continue;
    for (const int ranks : {1, 2, 3, 8})
      for (const Pattern pattern : kPatterns) {
        SCOPED_TRACE(std::string(scheme.name) + ", " + std::to_string(ranks) + " ranks, " +
                     scheme_test::name_of(pattern));
        const Inputs wide = make_inputs(pattern, ranks, 4097, DType::f32, 5);
        Inputs narrow = wide;
        for (Values& values : narrow)
          for (float& value : values) value = rounded(value, DType::bf16);
        const auto run = [&](const Inputs& inputs, DType dtype, std::optional<DType> wire_dtype) {
          ThreadGroup group(ranks, {.traits = ranks == 2 ? kNcclTraits : kGlooTraits});
          const Answer answer = run_job(group, {.scheme = std::string(scheme.name),
                                                .inputs = inputs,
                                                .dtype = dtype,
                                                .divisor = static_cast<float>(ranks),
                                                .chunks = 3,
                                                .pack_values = ranks == 3,
                                                .wire_dtype = wire_dtype});
          for (const scheme_test::Bytes& bytes : answer.by_rank)
            EXPECT_EQ(bytes, answer.by_rank[0]);
          return std::pair(pack(unpack(answer.by_rank[0], dtype), DType::f32),
                           group.transport(0).traffic().bytes_out);
        };
        EXPECT_EQ(run(wide, DType::f32, DType::bf16), run(narrow, DType::bf16, std::nullopt));
      }
  }
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const Scheme& scheme : schemes()) names.emplace_back(scheme.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, SchemeTest,
                         ::testing::Combine(::testing::ValuesIn(names()), ::testing::Bool(),
                                            ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 16)),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) ? "_ordered_" : "_unordered_") +
                                  std::to_string(std::get<2>(info.param));
                         });

}  // namespace
}  // namespace zen
