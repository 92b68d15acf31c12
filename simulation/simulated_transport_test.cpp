// Schemes on a simulated network: the same answers as over threads, in the time that the closed
// form says.
#include "simulation/simulated_transport.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "schemes/cluster.h"

namespace zen::simulation {
namespace {

using namespace scheme_test;

constexpr Link kLink{25e9 / 8, 10e-6};
constexpr int kMachines = 64;

SimulatedNetwork& network() {
  static SimulatedNetwork network(kMachines, kLink);
  return network;
}

struct Simulated {
  Group group;
  double seconds = 0;
  std::vector<Bytes> by_rank;
};

Simulated simulate(const Job& job, double scale = 1) {
  const int ranks = static_cast<int>(job.inputs.size());
  Simulated run{{ranks, scale, {}}, 0, std::vector<Bytes>(static_cast<size_t>(ranks))};
  const auto placement = placement_of(job);
  run.seconds = network().run(ranks, [&](int rank) {
    CpuDevice device;
    StrictObserver observer;
    const auto transport = make_simulated_transport(run.group, rank);
    const auto exchange = make_exchange(job, placement, 0, device, *transport, observer,
                                        run.by_rank[static_cast<size_t>(rank)]);
    exchange->prepare();
    exchange->post();
    exchange->finish();
  });
  return run;
}

Job job_of(const std::string& scheme, int ranks, Pattern pattern, size_t numel, int chunks = 1) {
  return {.scheme = scheme,
          .inputs = make_inputs(pattern, ranks, numel, DType::f32, 7),
          .dtype = DType::f32,
          .divisor = 1,
          .chunks = chunks};
}

TEST(SimulatedTransport, every_scheme_answers_as_over_threads) {
  for (const Scheme& scheme : schemes()) {
    if (scheme.name == "allreduce") continue;  // the transport's own
    for (const int ranks : {1, 2, 5}) {
      SCOPED_TRACE(std::string(scheme.name) + ", " + std::to_string(ranks) + " ranks");
      const Job job = job_of(std::string(scheme.name), ranks, Pattern::scattered, 20011, 3);
      ThreadGroup threads(ranks);
      EXPECT_EQ(simulate(job).by_rank, run_job(threads, job).by_rank);
    }
  }
}

// Dense gradients give equal messages, for which the closed form is exact up to a latency.
TEST(SimulatedTransport, push_and_pull_take_what_the_fullest_card_needs) {
  for (const int ranks : {2, 4, 16, 64}) {
    const Job job =
        job_of("balanced_parallelism", ranks, Pattern::dense, static_cast<size_t>(ranks) * 64 * 64);
    const double scale = 1e4;
    const Simulated run = simulate(job, scale);
    const double bound = port_load_seconds(run.group, kLink);
    EXPECT_NEAR(run.seconds / bound, 1, 0.01) << ranks << " ranks";
    const double message = (48 + 64 * 64 * 4) * scale;
    const double formula = 2 * ((ranks - 1) * message / kLink.bytes_per_second + 10e-6);
    EXPECT_NEAR(bound / formula, 1, 0.01) << ranks << " ranks";
  }
}

// For many ranks, whose transfers take the simulator long: the bytes are counted, and the time is
// the closed form's.
TEST(SimulatedTransport, scale_0_counts_bytes_and_moves_none) {
  const Job job = job_of("balanced_parallelism", 16, Pattern::scattered, 1 << 16);
  const Simulated moved = simulate(job), counted = simulate(job, 0);
  EXPECT_EQ(counted.by_rank, moved.by_rank);
  EXPECT_EQ(counted.group.load.out, moved.group.load.out);
  EXPECT_EQ(counted.group.load.in, moved.group.load.in);
  EXPECT_LT(counted.seconds, moved.seconds);
}

TEST(SimulatedTransport, sparse_messages_of_unequal_length_are_close_to_the_fullest_card) {
  for (const char* scheme : {"balanced_parallelism", "zen_paper", "agsparse", "omnireduce"}) {
    const Simulated run = simulate(job_of(scheme, 16, Pattern::scattered, 1 << 16), 1e3);
    const double bound = port_load_seconds(run.group, kLink);
    EXPECT_GE(run.seconds, 0.9 * bound) << scheme;
    EXPECT_LE(run.seconds, 1.1 * bound) << scheme;
  }
}

TEST(SimulatedTransport, all_non_zeros_at_one_owner_cost_what_its_card_needs) {
  const Job skewed = job_of("sparse_ps", 16, Pattern::one_range, 1 << 16);
  const Job spread = job_of("balanced_parallelism", 16, Pattern::one_range, 1 << 16);
  EXPECT_GT(simulate(skewed, 1e3).seconds, 4 * simulate(spread, 1e3).seconds);
}

TEST(SimulatedTransport, refuses_what_it_does_not_simulate_and_passes_exceptions_on) {
  EXPECT_THROW(simulate(job_of("allreduce", 2, Pattern::dense, 100)), InvalidArgument);
  EXPECT_THROW(network().run(kMachines + 1, [](int) {}), InvalidArgument);
  EXPECT_THROW(SimulatedNetwork(0, kLink), InvalidArgument);
  EXPECT_THROW(SimulatedNetwork(1, {0, 1}), InvalidArgument);
}

TEST(SimulatedTransport, ranks_that_mean_something_else_are_told) {
  Group group{3, 1, {}};
  const auto agree = [&](int odd_one) {
    network().run(3, [&](int rank) {
      make_simulated_transport(group, rank)->agree(rank == odd_one ? 1 : 2, "a bucket");
    });
  };
  EXPECT_NO_THROW(agree(-1));
  EXPECT_THROW(agree(1), TransportError);
}

}  // namespace
}  // namespace zen::simulation

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
