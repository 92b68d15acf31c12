// A simulated network of machines: each has one full-duplex card, and the switch between them never
// blocks. A transfer takes latency + bytes / rate; transfers that share a card share its rate, out
// and in each on its own, so that the fluid, max-min fair model of SimGrid is the L/b model of the
// papers.
//
// The ranks of a run are SimGrid's actors: coroutines of this process, of which one runs at a time.
// They compute in no time: what is simulated is the wire.
#pragma once

#include <functional>

namespace zen::simulation {

struct Link {
  double bytes_per_second = 0;
  double latency_seconds = 0;  // from one machine to another
};

// A process has at most one, because SimGrid does. Used by one thread.
class SimulatedNetwork {
 public:
  // Throws InvalidArgument unless machines >= 1 and the link's values are above 0.
  SimulatedNetwork(int machines, const Link& link);

  int machines() const { return machines_; }
  const Link& link() const { return link_; }

  // Runs rank(0) ... rank(ranks - 1) on as many machines and returns the seconds until the last one
  // returned. Rethrows the first exception that left one of them. REQUIRES: ranks <= machines().
  double run(int ranks, const std::function<void(int rank)>& rank);

 private:
  int machines_;
  Link link_;
};

}  // namespace zen::simulation
