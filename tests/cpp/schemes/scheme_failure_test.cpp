// A failure at any call of any rank must end every rank, with an error or with the right answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>

#include "cluster.h"
#include "core/error.h"

namespace zen {
namespace {

using namespace scheme_test;
using ::testing::HasSubstr;

constexpr int kRanks = 3;  // not a power of two: recursive doubling folds

std::vector<Job> two_jobs(const std::string& scheme) {
  std::vector<Job> jobs;
  for (const uint64_t seed : {1, 2})
    jobs.push_back({.scheme = scheme,
                    .inputs = make_inputs(Pattern::integers, kRanks, 1000, DType::f32, seed),
                    .chunks = 2});
  return jobs;
}

struct Fault {
  int rank;
  uint64_t call;
};

class SchemeFailureTest : public ::testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  ThreadGroup group() const {
    return ThreadGroup(kRanks, {.traits = std::get<1>(GetParam()) ? kNcclTraits : kGlooTraits});
  }
  std::vector<Job> jobs = two_jobs(std::get<0>(GetParam()));

  void expect_ended_well_or_with_the_cause(int rank, const Outcome& outcome, const Fault& fault,
                                           const std::vector<Answer>& answers) {
    const std::string& error = outcome.errors[rank];
    if (rank == fault.rank) {
      EXPECT_THAT(error, HasSubstr("on purpose at its call " + std::to_string(fault.call)));
    } else if (!error.empty()) {
      EXPECT_THAT(error, HasSubstr("rank " + std::to_string(fault.rank) + " of 3 failed"));
    } else {
      for (size_t j = 0; j < jobs.size(); ++j)
        EXPECT_EQ(compare_with_oracle(jobs[j].inputs, unpack(answers[j].by_rank[rank], DType::f32),
                                      DType::f32, 1, true),
                  "");
    }
  }
};

TEST_P(SchemeFailureTest, failure_at_any_call_reaches_every_rank) {
  ThreadGroup healthy = group();
  std::vector<Answer> answers;
  ASSERT_NO_THROW(run_jobs(healthy, jobs, answers).rethrow());
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_GT(healthy.calls(rank), 0u);
    for (uint64_t call = 0; call < healthy.calls(rank); ++call) {
      SCOPED_TRACE("rank " + std::to_string(rank) + " fails at its call " + std::to_string(call));
      ThreadGroup doomed = group();
      doomed.inject_fault(rank, call);
      const Outcome outcome = run_jobs(doomed, jobs, answers);
      for (int r = 0; r < kRanks; ++r)
        expect_ended_well_or_with_the_cause(r, outcome, {rank, call}, answers);
    }
  }
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const Scheme& scheme : schemes()) names.emplace_back(scheme.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, SchemeFailureTest,
                         ::testing::Combine(::testing::ValuesIn(names()), ::testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) ? "_ordered" : "_unordered");
                         });

// Calls make() of the scheme with a context that one function has spoiled.
void make_spoiled(const std::string& name, const std::function<void(Context&)>& spoil) {
  ThreadGroup group(2);
  CpuDevice device;
  Observer observer;
  const Scheme& scheme = find_scheme(name);
  const int owners = scheme.placement == PlacementKind::whole ? 1 : 2;
  std::vector<float> data(100);
  Context context{device,
                  group.transport(0),
                  observer,
                  {{reinterpret_cast<std::byte*>(data.data()), 400, nullptr}, DType::f32, 100},
                  Placement::make(scheme.placement, 100, owners, 1)};
  spoil(context);
  scheme.make(context);
}

TEST(SchemeContext, is_checked_before_anything_is_sent) {
  for (const Scheme& scheme : schemes()) {
    const std::string name(scheme.name);
    EXPECT_NO_THROW(make_spoiled(name, [](Context&) {})) << name;
    if (!scheme.has_placement) continue;
    const auto expect_refused = [&](const std::function<void(Context&)>& spoil) {
      EXPECT_THROW(make_spoiled(name, spoil), InvalidArgument) << name;
    };
    expect_refused([](Context& context) { context.placement = nullptr; });
    expect_refused([](Context& context) { context.chunks = 0; });
    expect_refused([](Context& context) { context.chunks = kMaxChunks + 1; });
    expect_refused([](Context& context) { context.gradient.numel = 99; });
    expect_refused([](Context& context) {
      context.placement = Placement::make(PlacementKind::ranges, 100, 3, 1);
    });
  }
}

TEST(SchemeContext, allreduce_divides_by_one_or_by_the_number_of_ranks) {
  EXPECT_NO_THROW(make_spoiled("allreduce", [](Context& context) { context.divisor = 2; }));
  EXPECT_THROW(make_spoiled("allreduce", [](Context& context) { context.divisor = 3; }),
               InvalidArgument);
}

}  // namespace
}  // namespace zen
