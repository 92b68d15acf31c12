#include "schemes/push_pull.h"

#include <algorithm>
#include <utility>

#include "core/fragment.h"
#include "schemes/chunks.h"

namespace zen {
namespace {

constexpr uint8_t kPushPhase = 0, kPullPhase = 1;

// A shard without slots takes no message: every rank knows that from the placement.
struct Chunk {
  uint8_t number = 0;
  WordRange range;
  std::vector<Shard> shards;   // by owner
  std::vector<Buffer> pushed;  // by owner: this rank's messages
  // By owner and piece: the pull's messages, own and received.
  std::vector<std::vector<Buffer>> sums;
  Ticket push = 0;
  std::vector<std::vector<Ticket>> pull;  // by round and step
};

class PushPull final : public Exchange {
 public:
  PushPull(const Context& context, const PushPullOptions& options);

  void prepare() override;
  void post() override;
  void finish() override;
  Report report() const override;

 private:
  bool takes_messages(const Chunk& chunk, int owner) const { return chunk.shards[owner].slots > 0; }
  Tag tag(const Chunk& chunk, size_t phase) const;
  Identity identity(const Chunk& chunk, uint8_t phase, int source) const;

  void prepare(Chunk& chunk);
  void expect_push(Chunk& chunk);
  void send_push(const Chunk& chunk);
  void reduce(Chunk& chunk);
  void expect_pull(Chunk& chunk, size_t round);
  void send_pull(Chunk& chunk, size_t round);
  void take_pull(Chunk& chunk, size_t round);
  size_t pull_capacity(const Chunk& chunk, int owner) const;
  std::vector<Buffer> in_pieces(const Buffer& sum) const;
  std::vector<Buffer> wholes(const Chunk& chunk) const;
  void decode(Chunk& chunk);

  Context context_;
  DType wire_;  // of the values in messages
  EncodeOptions push_, pull_;
  int rank_, size_;
  bool ordered_, exact_;
  int pieces_;
  std::vector<PullRound> rounds_;
  std::vector<Chunk> chunks_;
  std::vector<uint64_t> listed_;  // by owner
  uint64_t listed_in_sums_ = 0;
};

PushPull::PushPull(const Context& context, const PushPullOptions& options)
    : context_(context),
      wire_(context.wire_dtype.value_or(context.gradient.dtype)),
      push_(options.push),
      pull_(options.pull),
      rank_(context.transport.rank()),
      size_(context.transport.size()),
      ordered_(context.transport.traits().ordered),
      exact_(context.transport.traits().exact_sizes),
      listed_(size_) {
  PullPattern pattern = options.pattern(rank_, size_);
  pieces_ = pattern.pieces;
  push_.narrow_to = wire_;
  rounds_ = std::move(pattern.rounds);
  for (const WordRange range : chunk_ranges(context, size_)) {
    Chunk& chunk = chunks_.emplace_back();
    chunk.number = static_cast<uint8_t>(chunks_.size() - 1);
    chunk.range = range;
    chunk.sums.assign(size_, std::vector<Buffer>(pieces_));
    chunk.pull.resize(rounds_.size());
    for (int owner = 0; owner < size_; ++owner)
      chunk.shards.push_back(context.placement->shard(owner, range));
  }
}

// An ordered transport is told nothing before all is ready. Another takes each chunk's messages as
// soon as they are: see post().
void PushPull::prepare() {
  if (ordered_)
    for (Chunk& chunk : chunks_) prepare(chunk);
}

void PushPull::post() {
  {
    const StageScope scope(context_.observer, Stage::push);
    // A send waits for its receive, and the word that a receive is there travels behind whatever
    // the receiver already sends. So every receive goes first, and the link is used both ways.
    for (Chunk& chunk : chunks_) expect_push(chunk);
    if (!ordered_)  // an ordered transport allows no call before its turn: see send_pull()
      for (size_t round = 0; round < rounds_.size(); ++round)
        for (Chunk& chunk : chunks_) expect_pull(chunk, round);
  }
  for (Chunk& chunk : chunks_) {
    if (!ordered_) prepare(chunk);
    send_push(chunk);
  }
}

void PushPull::prepare(Chunk& chunk) {
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

void PushPull::finish() {
  for (Chunk& chunk : chunks_) {
    reduce(chunk);
    if (!rounds_.empty()) send_pull(chunk, 0);
  }
  for (size_t round = 0; round + 1 < rounds_.size(); ++round)
    for (Chunk& chunk : chunks_) {
      take_pull(chunk, round);
      send_pull(chunk, round + 1);
    }
  for (Chunk& chunk : chunks_) {
    if (!rounds_.empty()) take_pull(chunk, rounds_.size() - 1);
    decode(chunk);
  }
}

void PushPull::expect_push(Chunk& chunk) {
  std::vector<Expected> from;
  const size_t capacity = max_message_bytes(chunk.shards[rank_], wire_, push_.choice);
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_ && takes_messages(chunk, rank_)) from.push_back({peer, capacity});
  chunk.push = context_.transport.expect(tag(chunk, kPushPhase), from);
}

void PushPull::send_push(const Chunk& chunk) {
  const StageScope scope(context_.observer, Stage::push);
  std::vector<Outgoing> messages;
  for (int owner = 0; owner < size_; ++owner)
    if (owner != rank_ && takes_messages(chunk, owner))
      messages.push_back({owner, chunk.pushed[owner]});
  context_.transport.send(chunk.push, messages);
}

void PushPull::reduce(Chunk& chunk) {
  std::vector<Buffer> received;
  {
    const StageScope scope(context_.observer, Stage::push);
    received = context_.transport.wait(chunk.push);
  }
  const std::vector<Buffer> pushed = std::move(chunk.pushed);  // freed when this returns
  if (!takes_messages(chunk, rank_)) return;
  const StageScope scope(context_.observer, Stage::reduce);
  received.insert(received.begin() + rank_, pushed[rank_]);
  std::vector<Incoming> by_rank;
  by_rank.reserve(received.size());
  for (int source = 0; source < size_; ++source)
    by_rank.push_back({received[source], identity(chunk, kPushPhase, source), wire_});
  chunk.sums[rank_] = in_pieces(context_.device
                                    .merge(by_rank, chunk.shards[rank_], wire_, context_.divisor,
                                           pull_, identity(chunk, kPullPhase, rank_))
                                    .message);
}

size_t PushPull::pull_capacity(const Chunk& chunk, int owner) const {
  return max_message_bytes(chunk.shards[owner], wire_, pull_.choice);
}

std::vector<Buffer> PushPull::in_pieces(const Buffer& sum) const {
  return pieces_ == 1 ? std::vector{sum} : context_.device.cut(sum, pieces_);
}

// The sums of the owners that take messages.
std::vector<Buffer> PushPull::wholes(const Chunk& chunk) const {
  std::vector<Buffer> uncut;
  std::vector<Pieces> cut;
  for (int owner = 0; owner < size_; ++owner) {
    if (!takes_messages(chunk, owner)) continue;
    if (pieces_ == 1)
      uncut.push_back(chunk.sums[owner][0]);
    else
      cut.push_back({chunk.sums[owner], identity(chunk, kPullPhase, owner), owner,
                     pull_capacity(chunk, owner)});
  }
  return pieces_ == 1 ? uncut : context_.device.join(cut);
}

void PushPull::expect_pull(Chunk& chunk, size_t round) {
  for (const PullStep& step : rounds_[round]) {
    std::vector<Expected> from;
    for (const Route& route : step.receive) {
      if (!takes_messages(chunk, route.owner)) continue;
      const size_t capacity = pull_capacity(chunk, route.owner);
      from.push_back({route.peer, pieces_ == 1 ? capacity : max_fragment_bytes(capacity, pieces_)});
    }
    chunk.pull[round].push_back(context_.transport.expect(tag(chunk, kPullPhase + round), from));
  }
}

void PushPull::send_pull(Chunk& chunk, size_t round) {
  const StageScope scope(context_.observer, Stage::pull);
  if (ordered_) expect_pull(chunk, round);
  for (size_t i = 0; i < rounds_[round].size(); ++i) {
    std::vector<Outgoing> messages;
    for (const Route& route : rounds_[round][i].send)
      if (takes_messages(chunk, route.owner))
        messages.push_back({route.peer, chunk.sums[route.owner][route.piece]});
    context_.transport.send(chunk.pull[round][i], messages);
  }
}

void PushPull::take_pull(Chunk& chunk, size_t round) {
  const StageScope scope(context_.observer, Stage::pull);
  for (size_t i = 0; i < rounds_[round].size(); ++i) {
    std::vector<Buffer> received = context_.transport.wait(chunk.pull[round][i]);
    // Cut to their own lengths, because a later round may pass them on.
    if (!exact_) received = context_.device.trim(std::move(received));
    auto next = received.begin();
    for (const Route& route : rounds_[round][i].receive) {
      if (!takes_messages(chunk, route.owner)) continue;
      chunk.sums[route.owner][route.piece] = *next++;
    }
  }
}

void PushPull::decode(Chunk& chunk) {
  const StageScope scope(context_.observer, Stage::decode);
  const std::vector<Buffer> sums = wholes(chunk);
  auto next = sums.begin();
  std::vector<Update> updates;
  for (int owner = 0; owner < size_; ++owner)
    if (takes_messages(chunk, owner))
      updates.push_back({*next++, identity(chunk, kPullPhase, owner), chunk.shards[owner], wire_});
  listed_in_sums_ += context_.device.decode_write(updates, context_.gradient);
  chunk.sums.clear();
}

Tag PushPull::tag(const Chunk& chunk, size_t phase) const {
  return {context_.layout, context_.sequence, static_cast<uint8_t>(phase), chunk.number};
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
  report.nonzeros_summed = listed_in_sums_;
  if (report.nonzeros > 0)
    report.imbalance = static_cast<double>(largest) * size_ / static_cast<double>(report.nonzeros);
  return report;
}

}  // namespace

std::unique_ptr<Exchange> make_push_pull(const Context& context, const PushPullOptions& options) {
  return std::make_unique<PushPull>(context, options);
}

}  // namespace zen
