#include "schemes/node_exchange.h"

#include <algorithm>
#include <utility>

namespace zen {

namespace {

constexpr uint8_t kScatterPhase = 0, kGatherPhase = 1;

class NodeExchange final : public Exchange {
 public:
  explicit NodeExchange(NodeContext context);

  // The gradient that the scheme selects from exists only when the node has added it up.
  void prepare() override {}
  void post() override;
  void finish() override;
  Report report() const override { return between_ ? between_->report() : Report{}; }

 private:
  Buffer part(int rank) const;
  Tag tag(uint8_t phase) const { return {context_.layout, context_.sequence, phase, 0}; }
  std::vector<int> peers() const;

  void add_up();
  void exchange_between_nodes();
  void gather();

  NodeContext context_;
  int rank_, size_;
  std::vector<WordRange> parts_;
  Ticket scatter_ = 0;
  std::unique_ptr<Exchange> between_;
};

NodeExchange::NodeExchange(NodeContext context)
    : context_(std::move(context)),
      rank_(context_.node.rank()),
      size_(context_.node.size()),
      parts_(node_parts(context_.gradient.numel, size_)) {}

Buffer NodeExchange::part(int rank) const {
  const size_t element = size_of(context_.gradient.dtype);
  return context_.gradient.data.slice(parts_[rank].begin * kWordElems * element,
                                      elements_of(parts_[rank], context_.gradient.numel) * element);
}

std::vector<int> NodeExchange::peers() const {
  std::vector<int> peers;
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) peers.push_back(peer);
  return peers;
}

void NodeExchange::post() {
  const StageScope scope(context_.observer, Stage::push);
  std::vector<Expected> from;
  std::vector<Outgoing> messages;
  for (const int peer : peers()) {
    if (part(rank_).bytes > 0) from.push_back({peer, part(rank_).bytes, true});
    if (part(peer).bytes > 0) messages.push_back({peer, part(peer)});
  }
  scatter_ = context_.node.expect(tag(kScatterPhase), from);
  context_.node.send(scatter_, messages);
}

void NodeExchange::finish() {
  add_up();
  exchange_between_nodes();
  gather();
}

void NodeExchange::add_up() {
  std::vector<Buffer> by_rank;
  {
    const StageScope scope(context_.observer, Stage::push);
    by_rank = context_.node.wait(scatter_);
  }
  if (part(rank_).bytes == 0) return;
  const StageScope scope(context_.observer, Stage::reduce);
  by_rank.insert(by_rank.begin() + rank_, part(rank_));
  context_.device.sum(by_rank, context_.gradient.dtype, context_.divisor, part(rank_));
}

void NodeExchange::exchange_between_nodes() {
  const Buffer own = part(rank_);
  if (own.bytes == 0) return;
  between_ = context_.between_nodes(
      {own, context_.gradient.dtype, elements_of(parts_[rank_], context_.gradient.numel)});
  between_->prepare();
  between_->post();
  between_->finish();
}

void NodeExchange::gather() {
  std::vector<Expected> from;
  std::vector<Outgoing> messages;
  for (const int peer : peers()) {
    if (part(peer).bytes > 0) from.push_back({peer, part(peer).bytes, true});
    if (part(rank_).bytes > 0) messages.push_back({peer, part(rank_)});
  }
  std::vector<Buffer> received;
  {
    const StageScope scope(context_.observer, Stage::pull);
    const Ticket ticket = context_.node.expect(tag(kGatherPhase), from);
    context_.node.send(ticket, messages);
    received = context_.node.wait(ticket);
  }
  const StageScope scope(context_.observer, Stage::decode);
  for (size_t i = 0; i < from.size(); ++i) context_.device.copy(received[i], part(from[i].peer));
}

}  // namespace

std::vector<WordRange> node_parts(uint64_t numel, int ranks_per_node) {
  return Placement::make(PlacementKind::whole, numel, 1, 0)->split(ranks_per_node);
}

uint64_t elements_of(WordRange part, uint64_t numel) {
  return std::min(part.end * kWordElems, numel) - std::min(part.begin * kWordElems, numel);
}

std::unique_ptr<Exchange> make_node_exchange(NodeContext context) {
  return std::make_unique<NodeExchange>(std::move(context));
}

}  // namespace zen
