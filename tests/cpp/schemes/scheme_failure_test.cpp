// A failure of any rank at any point must end every rank, with an error that says where or with the
// right answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <tuple>

#include "core/error.h"
#include "corrupting_transport.h"
#include "pipelines.h"

namespace zen {
namespace {

using namespace scheme_test;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Ends = std::vector<std::vector<BucketEnd>>;  // by rank and bucket

class SchemeFailureTest : public ::testing::TestWithParam<std::tuple<std::string, bool, int>> {
 protected:
  int ranks() const { return std::get<2>(GetParam()); }
  ThreadGroup group() const {
    return ThreadGroup(ranks(), {.traits = std::get<1>(GetParam()) ? kNcclTraits : kGlooTraits});
  }

  // Two buckets in flight with three ranks, which is no power of two: recursive doubling folds.
  const std::vector<Job> jobs = [this] {
    std::vector<Job> jobs;
    for (uint64_t seed = 1; seed <= (ranks() == 3 ? 2 : 1); ++seed)
      jobs.push_back({.scheme = std::get<0>(GetParam()),
                      .inputs = make_inputs(Pattern::integers, ranks(), 1000, DType::f32, seed),
                      .chunks = 2});
    return jobs;
  }();

  // How many a rank receives if all goes well.
  uint64_t messages_to(int rank) const {
    ThreadGroup healthy = group();
    CorruptingTransport counting(healthy.transport(rank), UINT64_MAX, 0);
    run_pipelines(ranks(), jobs, [&](int other) -> Transport& {
      return other == rank ? counting : healthy.transport(other);
    });
    return counting.arrived();
  }

  // Every bucket of every rank is right, or says where and why it is not: its own `cause`, or that
  // another rank failed. Returns the errors, which are one string after the other.
  std::string expect_right_or_explained(const Ends& ends, const std::string& cause) const {
    std::string errors;
    for (int rank = 0; rank < ranks(); ++rank)
      for (size_t j = 0; j < jobs.size(); ++j) {
        const auto& [gradient, error, told] = ends[rank][j];
        errors += error;
        if (error.empty())
          EXPECT_EQ(compare_with_oracle(jobs[j].inputs, unpack(gradient, DType::f32), DType::f32, 1,
                                        true),
                    "");
        else
          expect_explains(error, rank, cause);
      }
    return errors;
  }

  void expect_explains(const std::string& error, int rank, const std::string& cause) const {
    EXPECT_THAT(error, StartsWith("zensync: rank " + std::to_string(rank) + ", bucket "));
    EXPECT_THAT(error,
                AnyOf(HasSubstr(cause), HasSubstr(" of " + std::to_string(ranks()) + " failed")));
    const std::string before = ", stage ";
    const size_t at = error.find(before);
    ASSERT_NE(at, std::string::npos) << error;
    const size_t begin = at + before.size();
    static const std::set<std::string> kStages = {"agree",  "select", "encode", "push",
                                                  "reduce", "pull",   "decode"};
    EXPECT_TRUE(kStages.contains(error.substr(begin, error.find(':', begin) - begin))) << error;
  }
};

TEST_P(SchemeFailureTest, failure_at_any_call_reaches_every_rank) {
  const auto run = [this](ThreadGroup& group) {
    return run_pipelines(ranks(), jobs,
                         [&](int rank) -> Transport& { return group.transport(rank); });
  };
  ThreadGroup healthy = group();
  ASSERT_EQ(expect_right_or_explained(run(healthy), ""), "");
  for (int rank = 0; rank < ranks(); ++rank) {
    ASSERT_GT(healthy.calls(rank), 0u);
    for (uint64_t call = 0; call < healthy.calls(rank); ++call) {
      SCOPED_TRACE("rank " + std::to_string(rank) + " fails at its call " + std::to_string(call));
      ThreadGroup doomed = group();
      doomed.inject_fault(rank, call);
      const Ends ends = run(doomed);
      const std::string cause = "on purpose at its call " + std::to_string(call);
      expect_right_or_explained(ends, cause);
      EXPECT_THAT(ends[rank].back().error, HasSubstr(cause));
    }
  }
}

// One byte of one message, whichever it is and whoever receives it.
TEST_P(SchemeFailureTest, malformed_message_in_any_phase_reaches_every_rank) {
  constexpr size_t kMagic = 0, kVersion = 2, kSequence = 8, kLayout = 12, kOwner = 16, kSource = 18;
  constexpr size_t kBytes[] = {kMagic, kVersion, kSequence, kLayout, kOwner, kSource};
  for (int victim = 0; victim < ranks(); ++victim) {
    const uint64_t messages = messages_to(victim);
    for (uint64_t message = 0; message < messages; ++message) {
      SCOPED_TRACE("rank " + std::to_string(victim) + ", message " + std::to_string(message));
      ThreadGroup healthy = group();
      CorruptingTransport corrupting(healthy.transport(victim), message,
                                     kBytes[(message + victim) % std::size(kBytes)]);
      const Ends ends = run_pipelines(ranks(), jobs, [&](int rank) -> Transport& {
        return rank == victim ? corrupting : healthy.transport(rank);
      });
      EXPECT_THAT(expect_right_or_explained(ends, "malformed message: "),
                  HasSubstr("malformed message: "));
      EXPECT_NE(ends[victim].back().error, "");
    }
  }
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const Scheme& scheme : schemes()) names.emplace_back(scheme.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, SchemeFailureTest,
                         ::testing::Combine(::testing::ValuesIn(names()), ::testing::Bool(),
                                            ::testing::Values(2, 3, 4)),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) ? "_ordered_" : "_unordered_") +
                                  std::to_string(std::get<2>(info.param));
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
