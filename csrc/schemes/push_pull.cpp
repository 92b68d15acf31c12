#include "schemes/push_pull.h"

#include <algorithm>
#include <utility>

#include "schemes/chunks.h"

namespace zen {
namespace {

constexpr uint8_t kPushPhase = 0, kPullPhase = 1;

// A shard without slots takes no message: both sides know it from the placement.
struct Chunk {
  uint8_t number = 0;
  WordRange range;
  std::vector<Shard> shards;   // by owner
  std::vector<Buffer> pushed;  // by owner; this rank's messages
  Buffer merged;               // this rank's shard, summed
  Ticket push = 0, pull = 0;
};

class PushPull final : public Exchange {
 public:
  PushPull(const Context& context, Choice push, Choice pull);

  void prepare() override;
  void post() override;
  void finish() override;
  Report report() const override;

 private:
  bool owns_any(const Chunk& chunk) const { return chunk.shards[rank_].slots > 0; }
  Tag tag(const Chunk& chunk, uint8_t phase) const;
  Identity identity(const Chunk& chunk, uint8_t phase, int source) const;

  void expect_push(Chunk& chunk);
  void send_push(const Chunk& chunk);
  void expect_pull(Chunk& chunk);
  void send_pull(const Chunk& chunk);
  void reduce(Chunk& chunk);
  void decode(Chunk& chunk);

  Context context_;
  Choice push_, pull_;
  int rank_, size_;
  bool ordered_;
  std::vector<Chunk> chunks_;
  std::vector<uint64_t> listed_;  // by owner
  uint64_t listed_by_any_ = 0;
};

PushPull::PushPull(const Context& context, Choice push, Choice pull)
    : context_(context),
      push_(push),
      pull_(pull),
      rank_(context.transport.rank()),
      size_(context.transport.size()),
      ordered_(context.transport.traits().ordered),
      listed_(size_) {
  for (const WordRange range : chunk_ranges(context, size_)) {
    Chunk& chunk = chunks_.emplace_back();
    chunk.number = static_cast<uint8_t>(chunks_.size() - 1);
    chunk.range = range;
    for (int owner = 0; owner < size_; ++owner)
      chunk.shards.push_back(context.placement->shard(owner, range));
  }
}

void PushPull::prepare() {
  for (Chunk& chunk : chunks_) {
    Selection selection;
    {
      const StageScope scope(context_.observer, Stage::select);
      selection = context_.device.select(context_.gradient, *context_.placement, chunk.range);
    }
    for (int owner = 0; owner < size_; ++owner) listed_[owner] += selection[owner].count;
    const StageScope scope(context_.observer, Stage::encode);
    chunk.pushed =
        context_.device.encode(std::move(selection), push_, identity(chunk, kPushPhase, rank_));
  }
}

void PushPull::post() {
  const StageScope scope(context_.observer, Stage::push);
  if (ordered_) {
    // expect() and send() are collectives: the pull's follow in finish(), chunk by chunk.
    for (Chunk& chunk : chunks_) {
      expect_push(chunk);
      send_push(chunk);
    }
    return;
  }
  // A send waits for its receive, and the word that the receive is there travels behind whatever
  // this rank already sends. So every receive goes first, and the link is used both ways.
  for (Chunk& chunk : chunks_) expect_push(chunk);
  for (Chunk& chunk : chunks_) expect_pull(chunk);
  for (const Chunk& chunk : chunks_) send_push(chunk);
}

void PushPull::finish() {
  for (Chunk& chunk : chunks_) {
    reduce(chunk);
    const StageScope scope(context_.observer, Stage::pull);
    if (ordered_) expect_pull(chunk);
    send_pull(chunk);
  }
  for (Chunk& chunk : chunks_) decode(chunk);
}

void PushPull::reduce(Chunk& chunk) {
  std::vector<Buffer> received;
  {
    const StageScope scope(context_.observer, Stage::push);
    received = context_.transport.wait(chunk.push);
  }
  const std::vector<Buffer> pushed = std::move(chunk.pushed);  // freed at the end, like `received`
  if (!owns_any(chunk)) return;
  const StageScope scope(context_.observer, Stage::reduce);
  received.insert(received.begin() + rank_, pushed[rank_]);
  std::vector<Incoming> by_rank;
  for (int source = 0; source < size_; ++source)
    by_rank.push_back(
        {received[source], identity(chunk, kPushPhase, source), context_.gradient.dtype});
  chunk.merged = context_.device
                     .merge(by_rank, chunk.shards[rank_], context_.gradient.dtype, context_.divisor,
                            pull_, identity(chunk, kPullPhase, rank_))
                     .message;
}

void PushPull::decode(Chunk& chunk) {
  std::vector<Buffer> received;
  {
    const StageScope scope(context_.observer, Stage::pull);
    received = context_.transport.wait(chunk.pull);
  }
  const StageScope scope(context_.observer, Stage::decode);
  auto next = received.begin();
  for (int owner = 0; owner < size_; ++owner) {
    if (chunk.shards[owner].slots == 0) continue;
    const Buffer message = owner == rank_ ? std::exchange(chunk.merged, {}) : *next++;
    listed_by_any_ += context_.device.decode_write(
        message, chunk.shards[owner], identity(chunk, kPullPhase, owner), context_.gradient);
  }
}

void PushPull::expect_push(Chunk& chunk) {
  std::vector<Expected> from;
  if (owns_any(chunk)) {
    const size_t capacity = max_message_bytes(chunk.shards[rank_], context_.gradient.dtype, push_);
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_) from.push_back({peer, capacity});
  }
  chunk.push = context_.transport.expect(tag(chunk, kPushPhase), from);
}

void PushPull::send_push(const Chunk& chunk) {
  std::vector<Outgoing> messages;
  for (int owner = 0; owner < size_; ++owner)
    if (owner != rank_ && chunk.shards[owner].slots > 0)
      messages.push_back({owner, chunk.pushed[owner]});
  context_.transport.send(chunk.push, messages);
}

void PushPull::expect_pull(Chunk& chunk) {
  std::vector<Expected> from;
  for (int owner = 0; owner < size_; ++owner)
    if (owner != rank_ && chunk.shards[owner].slots > 0)
      from.push_back(
          {owner, max_message_bytes(chunk.shards[owner], context_.gradient.dtype, pull_)});
  chunk.pull = context_.transport.expect(tag(chunk, kPullPhase), from);
}

void PushPull::send_pull(const Chunk& chunk) {
  std::vector<Outgoing> messages;
  if (owns_any(chunk))
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_) messages.push_back({peer, chunk.merged});
  context_.transport.send(chunk.pull, messages);
}

Tag PushPull::tag(const Chunk& chunk, uint8_t phase) const {
  return {context_.layout, context_.sequence, phase, chunk.number};
}

Identity PushPull::identity(const Chunk& chunk, uint8_t phase, int source) const {
  return {context_.layout, context_.sequence, phase, chunk.number, static_cast<uint16_t>(source)};
}

Report PushPull::report() const {
  Report report;
  uint64_t largest = 0;
  for (const uint64_t listed : listed_) {
    report.nonzeros += listed;
    largest = std::max(largest, listed);
  }
  report.nonzeros_summed = listed_by_any_;
  if (report.nonzeros > 0)
    report.imbalance = static_cast<double>(largest) * size_ / static_cast<double>(report.nonzeros);
  return report;
}

}  // namespace

std::unique_ptr<Exchange> make_push_pull(const Context& context, Choice push, Choice pull) {
  return std::make_unique<PushPull>(context, push, pull);
}

}  // namespace zen
