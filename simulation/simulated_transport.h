// Messages between the ranks of a SimulatedNetwork: the same schemes as over gloo, with real
// messages whose travelling is simulated.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "schemes/transport.h"
#include "simulation/simulated_network.h"

namespace zen::simulation {

// Bytes of messages that every rank sent, and received, under each phase number of a run.
struct Load {
  std::map<int, std::vector<uint64_t>> out, in;  // by phase, by rank
};

// A message of b bytes travels as b * scale bytes, at least one: a small gradient can stand for a
// large one of the same density. What is sent is counted in `load`, as it is.
struct Group {
  int size = 1;
  double scale = 1;
  Load load = {};
};

// What the fullest card needs, phase after phase: the sum over the phases of
// max over ranks of max(out, in) * scale / rate + latency.
double port_load_seconds(const Group& group, const Link& link);

// One per rank, made and used on the rank's own actor. `group` outlives it. Its all_reduce() throws
// InvalidArgument: a ring's time is a formula, 2(n-1)(M/(n*rate) + latency).
std::unique_ptr<Transport> make_simulated_transport(Group& group, int rank);

}  // namespace zen::simulation
