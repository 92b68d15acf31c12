// Several ranks in one node (paper, section 4): a gradient is added up inside the node, each rank
// of the node synchronises one part of it with the ranks of the other nodes that have the same
// part, and the parts are gathered inside the node again.
//
//   dense reduce-scatter in the node ──► a scheme between nodes, on one part ──► dense all-gather
//
// Links inside a node are fast, so nothing is encoded there: messages are the elements themselves,
// whose number both sides know. Sums inside the node are rounded to the gradient's dtype before
// they leave it (docs/numerics.md).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "schemes/exchange.h"

namespace zen {

// The part of a gradient that each rank of a node owns, in words; lengths differ by at most one
// word, and with fewer words than ranks some are empty.
std::vector<WordRange> node_parts(uint64_t numel, int ranks_per_node);

// Elements of a part.
uint64_t elements_of(WordRange part, uint64_t numel);

// What a node does for one bucket. References outlive the exchange.
struct NodeContext {
  Device& device;
  Transport& node;  // among the ranks of this node; used for nothing else
  Observer& observer;
  Gradient gradient;
  uint32_t layout = 0;
  uint32_t sequence = 0;
  float divisor = 1;  // of the sum inside the node; the exchange between nodes has its own

  // The exchange of this rank's part with the other nodes. Called at most once, when the part holds
  // the node's sum; not called for an empty part.
  std::function<std::unique_ptr<Exchange>(const Gradient& part)> between_nodes;
};

std::unique_ptr<Exchange> make_node_exchange(NodeContext context);

}  // namespace zen
