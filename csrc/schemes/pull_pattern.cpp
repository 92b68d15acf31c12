#include "schemes/pull_pattern.h"

#include <algorithm>

namespace zen {

PullPattern point_to_point(int rank, int size) {
  PullStep step;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    step.send.push_back({peer, rank});
    step.receive.push_back({peer, peer});
  }
  return {{step}};
}

PullPattern binomial_trees(int rank, int size) {
  const auto behind = [&](int distance) { return (rank - distance + size) % size; };
  PullPattern rounds;
  for (int reach = 1; reach < size; reach *= 2) {
    PullRound& round = rounds.emplace_back();
    for (int distance = 0; distance < std::min(reach, size - reach); ++distance)
      round.push_back({.send = {{(rank + reach) % size, behind(distance)}},
                       .receive = {{behind(reach), behind(reach + distance)}}});
  }
  return rounds;
}

}  // namespace zen
