// Several ranks per node: a plain two-level oracle, every scheme between the nodes, uneven and
// empty parts, and failures of any rank at any call.
#include "schemes/node_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "cluster.h"
#include "pipelines.h"
#include "schemes/pipeline.h"

namespace zen {
namespace {

using namespace scheme_test;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Shape {
  int nodes, per_node;
  int ranks() const { return nodes * per_node; }
};

struct Setting {
  Shape shape;
  std::string scheme;
  bool ordered = false;
};

// Rank r is rank r % per_node of node r / per_node.
class Nodes {
 public:
  Nodes(const Shape& shape, bool ordered) : shape_(shape) {
    const ThreadOptions options{.traits = ordered ? kNcclTraits : kGlooTraits};
    for (int node = 0; node < shape.nodes; ++node)
      inside_.push_back(std::make_unique<ThreadGroup>(shape.per_node, options));
    for (int local = 0; local < shape.per_node; ++local)
      between_.push_back(std::make_unique<ThreadGroup>(shape.nodes, options));
  }

  ThreadGroup& inside(int rank) { return *inside_[rank / shape_.per_node]; }
  ThreadGroup& between(int rank) { return *between_[rank % shape_.per_node]; }
  Transport& node(int rank) { return inside(rank).transport(rank % shape_.per_node); }
  Transport& transport(int rank) { return between(rank).transport(rank / shape_.per_node); }

 private:
  Shape shape_;
  std::vector<std::unique_ptr<ThreadGroup>> inside_, between_;
};

class NodeTask final : public Task {
 public:
  NodeTask(const Job& job, int number, Device& device, Nodes& nodes, int rank, BucketEnd& end)
      : job_(job), number_(number), device_(device), nodes_(nodes), rank_(rank), end_(end) {}

  std::string name() const override { return "bucket " + std::to_string(number_); }
  std::string_view stage() const override { return observer_.latest(); }
  Layout layout() override { return {fingerprint_of(job_), job_.scheme, false}; }
  std::unique_ptr<Exchange> exchange(uint32_t sequence) override;
  void done(const Report& report, const Traffic&) noexcept override {
    EXPECT_GE(report.imbalance, 1);
    finish("");
  }
  void failed(const std::string& message) noexcept override { finish(message); }

 private:
  void finish(const std::string& error) {
    EXPECT_FALSE(end_.told);
    end_.told = true;
    end_.error = error;
  }

  const Job& job_;
  int number_;
  Device& device_;
  Nodes& nodes_;
  int rank_;
  BucketEnd& end_;
  StrictObserver observer_;
};

std::unique_ptr<Exchange> NodeTask::exchange(uint32_t sequence) {
  end_.gradient = pack(job_.inputs[rank_], job_.dtype);
  const bool mean = job_.divisor != 1;
  const auto layout = static_cast<uint32_t>(fingerprint_of(job_));
  const auto between = [this, sequence, mean, layout](const Gradient& part) {
    const Scheme& scheme = find_scheme(job_.scheme);
    Transport& transport = nodes_.transport(rank_);
    const int owners = scheme.placement == PlacementKind::whole ? 1 : transport.size();
    return scheme.make({.device = device_,
                        .transport = transport,
                        .observer = observer_,
                        .gradient = part,
                        .placement = scheme.has_placement
                                         ? Placement::make(scheme.placement, part.numel, owners, 3)
                                         : nullptr,
                        .layout = layout,
                        .sequence = sequence,
                        .divisor = mean ? static_cast<float>(transport.size()) : 1,
                        .chunks = job_.chunks});
  };
  Transport& node = nodes_.node(rank_);
  const Gradient gradient{
      {end_.gradient.data(), end_.gradient.size(), nullptr}, job_.dtype, job_.inputs[0].size()};
  return make_node_exchange({.device = device_,
                             .node = node,
                             .observer = observer_,
                             .gradient = gradient,
                             .layout = layout,
                             .sequence = sequence,
                             .divisor = mean ? static_cast<float>(node.size()) : 1,
                             .between_nodes = between});
}

using Ends = std::vector<std::vector<BucketEnd>>;  // by rank and bucket

Ends run(Nodes& nodes, const Shape& shape, const std::vector<Job>& jobs) {
  Ends ends(shape.ranks(), std::vector<BucketEnd>(jobs.size()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < shape.ranks(); ++rank)
    threads.emplace_back([&, rank] {
      CpuDevice device;
      Pipeline pipeline(nodes.transport(rank), &nodes.node(rank), rank);
      for (size_t j = 0; j < jobs.size(); ++j) {
        pipeline.start(std::make_unique<NodeTask>(jobs[j], static_cast<int>(j), device, nodes, rank,
                                                  ends[rank][j]));
        if (pipeline.in_flight() == 2) pipeline.finish_oldest();
      }
      while (pipeline.in_flight() > 0) pipeline.finish_oldest();
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& buckets : ends)
    for (const BucketEnd& end : buckets) EXPECT_TRUE(end.told) << "a bucket never ends";
  return ends;
}

// In rank order inside each node, rounded, then in the order of the nodes, rounded.
float two_level_sum(const Job& job, const Shape& shape, size_t elem) {
  float sum = 0;
  for (int node = 0; node < shape.nodes; ++node) {
    float inside = 0;
    for (int local = 0; local < shape.per_node; ++local)
      inside += job.inputs[node * shape.per_node + local][elem];
    sum +=
        rounded(job.divisor == 1 ? inside : inside / static_cast<float>(shape.per_node), job.dtype);
  }
  return rounded(job.divisor == 1 ? sum : sum / static_cast<float>(shape.nodes), job.dtype);
}

void expect_right(const Job& job, const Shape& shape, const Ends& ends, size_t number) {
  SCOPED_TRACE(std::to_string(job.inputs[0].size()) + " elements of " + name_of(job.dtype));
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    ASSERT_EQ(ends[rank][number].error, "");
    EXPECT_EQ(ends[rank][number].gradient, ends[0][number].gradient) << "rank " << rank;
  }
  const Values result = unpack(ends[0][number].gradient, job.dtype);
  for (size_t elem = 0; elem < result.size(); ++elem) {
    const float expected = two_level_sum(job, shape, elem);
    ASSERT_TRUE(result[elem] == expected || (std::isnan(result[elem]) && std::isnan(expected)))
        << "element " << elem << " is " << result[elem] << ", not " << expected;
  }
}

class NodeExchangeTest : public ::testing::TestWithParam<std::tuple<Shape, bool>> {
 protected:
  Shape shape() const { return std::get<0>(GetParam()); }
  bool ordered() const { return std::get<1>(GetParam()); }
};

TEST_P(NodeExchangeTest, answer_is_that_of_two_plain_sums) {
  constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16};
  size_t turn = 0;
  for (const Pattern pattern : kPatterns) {
    std::vector<Job> jobs;
    for (const size_t numel : {0, 1, 64, 65, 191, 1000, 4097}) {
      ++turn;
      jobs.push_back(
          {.scheme = "balanced_parallelism",
           .inputs = make_inputs(pattern, shape().ranks(), numel, kDTypes[turn % 3], turn),
           .dtype = kDTypes[turn % 3],
           .divisor = turn % 2 == 0 ? 1 : static_cast<float>(shape().ranks()),
           .chunks = 1 + static_cast<int>(turn % 3)});
    }
    Nodes nodes(shape(), ordered());
    const Ends ends = run(nodes, shape(), jobs);
    for (size_t j = 0; j < jobs.size(); ++j) expect_right(jobs[j], shape(), ends, j);
    if (HasFailure()) return;
  }
}

TEST_P(NodeExchangeTest, any_scheme_works_between_nodes) {
  for (const Scheme& scheme : schemes()) {
    SCOPED_TRACE(scheme.name);
    const Job job{.scheme = std::string(scheme.name),
                  .inputs = make_inputs(Pattern::integers, shape().ranks(), 1000, DType::f32, 3)};
    Nodes nodes(shape(), ordered());
    expect_right(job, shape(), run(nodes, shape(), {job}), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, NodeExchangeTest,
                         ::testing::Combine(::testing::Values(Shape{2, 2}, Shape{3, 2}, Shape{2, 3},
                                                              Shape{1, 4}, Shape{3, 1}),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           const Shape shape = std::get<0>(info.param);
                           return std::to_string(shape.nodes) + "_nodes_of_" +
                                  std::to_string(shape.per_node) +
                                  (std::get<1>(info.param) ? "_ordered" : "_unordered");
                         });

// Whoever fails, inside a node or between nodes: every rank of every node gets the answer or an
// error.
TEST(NodeFailure, failure_at_any_call_reaches_every_rank) {
  const Shape shape{2, 2};
  std::vector<Job> jobs;
  for (uint64_t seed = 1; seed <= 2; ++seed)
    jobs.push_back({.scheme = "balanced_parallelism",
                    .inputs = make_inputs(Pattern::integers, 4, 1000, DType::f32, seed)});
  Nodes healthy(shape, false);
  run(healthy, shape, jobs);
  for (int rank = 0; rank < shape.ranks(); ++rank)
    for (const bool inside : {true, false}) {
      const auto group_of = [&](Nodes& nodes) -> ThreadGroup& {
        return inside ? nodes.inside(rank) : nodes.between(rank);
      };
      const int place = inside ? rank % shape.per_node : rank / shape.per_node;
      const uint64_t calls = group_of(healthy).calls(place);
      ASSERT_GT(calls, 0u);
      for (uint64_t call = 0; call < calls; ++call) {
        SCOPED_TRACE("rank " + std::to_string(rank) + (inside ? ", node" : "") + ", call " +
                     std::to_string(call));
        Nodes doomed(shape, false);
        group_of(doomed).inject_fault(place, call);
        const Ends ends = run(doomed, shape, jobs);
        EXPECT_THAT(ends[rank].back().error, HasSubstr("on purpose"));
        for (int other = 0; other < shape.ranks(); ++other)
          for (size_t j = 0; j < jobs.size(); ++j) {
            const BucketEnd& end = ends[other][j];
            if (!end.error.empty())
              EXPECT_THAT(end.error, StartsWith("zensync: rank " + std::to_string(other)));
            else
              EXPECT_EQ(unpack(end.gradient, DType::f32)[7], two_level_sum(jobs[j], shape, 7));
          }
      }
    }
}

// Layouts are compared inside nodes and between them, so no two ranks can mean different buckets.
TEST(NodeFailure, ranks_that_disagree_all_learn_it) {
  const Shape shape{2, 2};
  for (int odd = 0; odd < shape.ranks(); ++odd) {
    Nodes nodes(shape, false);
    std::vector<std::string> errors(shape.ranks());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < shape.ranks(); ++rank)
      threads.emplace_back([&, rank] {
        const Job job{.scheme = "balanced_parallelism",
                      .inputs = Inputs(4, Values(rank == odd ? 65 : 64, 1.0f))};
        CpuDevice device;
        Pipeline pipeline(nodes.transport(rank), &nodes.node(rank), rank);
        BucketEnd end;
        pipeline.start(std::make_unique<NodeTask>(job, 0, device, nodes, rank, end));
        while (pipeline.in_flight() > 0) pipeline.finish_oldest();
        errors[rank] = end.error;
      });
    for (std::thread& thread : threads) thread.join();
    for (int rank = 0; rank < shape.ranks(); ++rank)
      EXPECT_THAT(errors[rank], HasSubstr("bucket 0, stage agree")) << "odd one " << odd;
  }
}

TEST(NodeParts, cover_the_gradient_and_differ_by_at_most_one_word) {
  for (const uint64_t numel : {0, 1, 63, 64, 65, 1000, 4097})
    for (const int per_node : {1, 2, 3, 8}) {
      uint64_t covered = 0, elements = 0, shortest = UINT64_MAX, longest = 0;
      for (const WordRange part : node_parts(numel, per_node)) {
        EXPECT_EQ(part.begin, covered);
        covered = part.end;
        elements += elements_of(part, numel);
        shortest = std::min(shortest, part.end - part.begin);
        longest = std::max(longest, part.end - part.begin);
      }
      EXPECT_EQ(covered, Placement::words_for(numel));
      EXPECT_EQ(elements, numel);
      EXPECT_LE(longest - shortest, 1u);
    }
}

}  // namespace
}  // namespace zen
