// Who passes which owner's sum to whom, so that in the end every rank has all of them.
#pragma once

#include <vector>

namespace zen {

struct Route {
  int peer = 0;
  int owner = 0;  // whose sum travels to, or comes from, the peer
  int piece = 0;  // which part of it
};

// Sends and receives that happen together, at most one each way between two ranks.
struct PullStep {
  std::vector<Route> send;
  std::vector<Route> receive;
};

// Steps that pass on only what earlier rounds have brought, so they can all be under way at once.
using PullRound = std::vector<PullStep>;

// All ranks have the same number of rounds, and of steps in a round: an ordered transport needs it.
struct PullPattern {
  int pieces = 1;  // that a sum is cut into; every rank needs all of them
  std::vector<PullRound> rounds;
};

// One round: every owner sends its sum to every other rank, n - 1 times.
PullPattern point_to_point(int rank, int size);

// ceil(log2 n) rounds: every owner's sum spreads along a binomial tree. In round t the 2^t ranks
// that follow the owner, itself included, pass it on to the rank 2^t further. So no rank sends its
// own sum more than ceil(log2 n) times, and every rank sends n - 1 messages in all.
PullPattern binomial_trees(int rank, int size);

// Two rounds: every owner scatters the n pieces of its sum over the ranks, itself included; then
// each rank sends everybody the pieces that it has. So no rank sends much more than twice a sum for
// each owner, however large one of the sums is.
PullPattern scatter_and_gather(int rank, int size);

}  // namespace zen
