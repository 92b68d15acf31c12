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
  return {1, {{step}}};
}

PullPattern binomial_trees(int rank, int size) {
  const auto behind = [&](int distance) { return (rank - distance + size) % size; };
  PullPattern pattern;
  for (int reach = 1; reach < size; reach *= 2) {
    PullRound& round = pattern.rounds.emplace_back();
    for (int distance = 0; distance < std::min(reach, size - reach); ++distance)
      round.push_back({.send = {{(rank + reach) % size, behind(distance)}},
                       .receive = {{behind(reach), behind(reach + distance)}}});
  }
  return pattern;
}

PullPattern scatter_and_gather(int rank, int size) {
  PullStep scatter;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    scatter.send.push_back({peer, rank, peer});
    scatter.receive.push_back({peer, peer, rank});
  }
  // In step `ahead` a rank sends its piece of the sum of the owner that is so far ahead of it.
  PullRound gather;
  for (int ahead = 0; ahead < size; ++ahead) {
    PullStep& step = gather.emplace_back();
    const int owner = (rank + ahead) % size;
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      if (peer != owner) step.send.push_back({peer, owner, rank});
      const int theirs = (peer + ahead) % size;
      if (theirs != rank) step.receive.push_back({peer, theirs, peer});
    }
  }
  return {size, {{scatter}, gather}};
}

}  // namespace zen
