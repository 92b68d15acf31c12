// How long do the schemes take on many ranks, if nothing but the wire costs time?
//
//   simulate_schemes [RANKS...]     default: 4 16 128
//
// A gradient of 214 million float32 elements, 1.06% of them non-zero on a rank in whole rows with
// uneven popularity, cards of 25 Gbit/s, 10 microseconds. A smaller gradient of the same density
// stands for it. Printed beside the closed form of the fullest card, and of a ring of the dense
// gradient. Above 64 ranks the simulator would take minutes, so only the closed form is printed;
// its bytes are counted by running the schemes.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "core/cpu_device.h"
#include "schemes/exchange.h"
#include "simulation/simulated_transport.h"

namespace zen::simulation {
namespace {

constexpr uint64_t kNumel = 1 << 20, kRealNumel = 214'000'000, kRowElems = 256;
constexpr double kScale = static_cast<double>(kRealNumel) / kNumel, kDensity = 0.0106;
constexpr Link kLink{25e9 / 8, 10e-6};
constexpr int kMostSimulated = 64;
constexpr const char* kSchemes[] = {
    "balanced_parallelism", "zen_paper", "hierarchical",       "sparcml", "agsparse",
    "omnireduce",           "sparse_ps", "sparse_ps_broadcast"};

// The n-th most popular row is drawn with a chance that falls like 1 / n^0.75.
std::vector<float> gradient_of(int rank) {
  constexpr uint64_t kRows = kNumel / kRowElems;
  std::mt19937_64 random(static_cast<uint64_t>(rank) + 1);
  std::uniform_real_distribution<double> chance(0, 1);
  std::vector<float> gradient(kNumel, 0.0f);
  for (auto missing = static_cast<int64_t>(kDensity * kRows); missing > 0;) {
    const auto row = static_cast<uint64_t>(kRows * std::pow(chance(random), 4));
    if (gradient[row * kRowElems] != 0) continue;
    for (uint64_t elem = 0; elem < kRowElems; ++elem)
      gradient[row * kRowElems + elem] = static_cast<float>(chance(random)) + 0.5f;
    --missing;
  }
  return gradient;
}

// Seconds, simulated; `group` gets the bytes.
double run(SimulatedNetwork& network, const Scheme& scheme, Group& group) {
  const int owners = scheme.placement == PlacementKind::whole ? 1 : group.size;
  const auto placement = Placement::make(scheme.placement, kNumel, owners, 1);
  return network.run(group.size, [&](int rank) {
    CpuDevice device;
    Observer observer;
    std::vector<float> gradient = gradient_of(rank);
    const auto transport = make_simulated_transport(group, rank);
    const auto exchange = scheme.make(
        {.device = device,
         .transport = *transport,
         .observer = observer,
         .gradient = {{reinterpret_cast<std::byte*>(gradient.data()), 4 * kNumel, nullptr},
                      DType::f32,
                      kNumel},
         .placement = placement});
    exchange->prepare();
    exchange->post();
    exchange->finish();
  });
}

void simulate(SimulatedNetwork& network, int ranks) {
  const double ring =
      2 * (ranks - 1) * (4.0 * kRealNumel / ranks / kLink.bytes_per_second + kLink.latency_seconds);
  std::printf("%d ranks; a ring of the dense gradient takes %.6f s\n", ranks, ring);
  for (const char* name : kSchemes) {
    Group group{ranks, ranks <= kMostSimulated ? kScale : 0};
    const double seconds = run(network, find_scheme(name), group);
    group.scale = kScale;
    const double form = port_load_seconds(group, kLink);
    if (ranks <= kMostSimulated)
      std::printf("  %-22s %.6f s, %+.2f%% of the closed form, %.1f x faster than the ring\n", name,
                  seconds, 100 * (seconds / form - 1), ring / seconds);
    else
      std::printf("  %-22s %.6f s by the closed form, %.1f x faster than the ring\n", name, form,
                  ring / form);
  }
}

}  // namespace
}  // namespace zen::simulation

int main(int count, char** arguments) {
  using namespace zen::simulation;
  std::vector<int> ranks;
  for (int i = 1; i < count; ++i) ranks.push_back(std::atoi(arguments[i]));
  if (ranks.empty()) ranks = {4, 16, 128};
  int most = 0;
  for (const int n : ranks) {
    if (n < 1 || n > 1024) {
      std::fprintf(stderr, "simulate_schemes: ranks must be from 1 to 1024\n");
      return 2;
    }
    most = n > most ? n : most;
  }
  SimulatedNetwork network(most, kLink);
  for (const int n : ranks) simulate(network, n);
}
