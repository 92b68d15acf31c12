#include "schemes/recursive_doubling.h"

#include <bit>
#include <utility>

#include "schemes/chunks.h"

namespace zen {
namespace {

constexpr int kNobody = -1;

// Whom a rank talks to in which phase: folding is phase 0, the steps are phases 1 to steps(), the
// results go back to the folded ranks in the phase after them.
class Schedule {
 public:
  Schedule(int rank, int size)
      : rank_(rank),
        steps_(std::bit_width(static_cast<unsigned>(size)) - 1),
        folded_(size - (1 << steps_)) {}

  int steps() const { return steps_; }
  int first_phase() const { return folded_ > 0 ? 0 : 1; }
  int last_phase() const { return folded_ > 0 ? steps_ + 1 : steps_; }
  bool is_step(int phase) const { return phase >= 1 && phase <= steps_; }

  // Odd ranks of the folded pairs sit out the steps.
  bool sits_out() const { return in_pair() && rank_ % 2 == 1; }
  bool in_pair() const { return rank_ < 2 * folded_; }

  int receives_from(int phase) const {
    if (is_step(phase)) return sits_out() ? kNobody : partner(phase);
    return in_pair() && sits_out() == (phase > 0) ? rank_ ^ 1 : kNobody;
  }
  int sends_to(int phase) const {
    if (is_step(phase)) return receives_from(phase);
    return in_pair() && sits_out() == (phase == 0) ? rank_ ^ 1 : kNobody;
  }

  // True if what `rank` sends in `phase` is a sum of several ranks, not yet rounded.
  bool is_partial(int rank, int phase) const {
    return is_step(phase) && (phase > 1 || rank < 2 * folded_);
  }

 private:
  // The ranks that take part, numbered without gaps.
  int partner(int phase) const {
    const int number = in_pair() ? rank_ / 2 : rank_ - folded_;
    const int other = number ^ 1 << (phase - 1);
    return other < folded_ ? 2 * other : other + folded_;
  }

  int rank_, steps_, folded_;
};

struct Chunk {
  uint8_t number = 0;
  WordRange range;
  Shard shard;
  Buffer running;               // this rank's sum so far, ready for the next phase
  std::vector<Ticket> tickets;  // by phase, counted from the first
};

class RecursiveDoubling final : public Exchange {
 public:
  RecursiveDoubling(const Context& context, const EncodeOptions& options);

  void prepare() override;
  void post() override;
  void finish() override;
  Report report() const override { return {nonzeros_, listed_in_sums_, 1}; }

 private:
  DType dtype_of(int source, int phase) const {
    return schedule_.is_partial(source, phase) ? DType::f32 : context_.gradient.dtype;
  }
  Identity identity(const Chunk& chunk, int phase, int source) const;
  Incoming incoming(const Chunk& chunk, Buffer message, int phase, int source) const {
    return {std::move(message), identity(chunk, phase, source), dtype_of(source, phase)};
  }

  void expect(Chunk& chunk, int phase);
  void send(Chunk& chunk, int phase);
  void take(Chunk& chunk, int phase);
  void add(Chunk& chunk, int phase, std::span<const Incoming> in_rank_order);
  void decode(Chunk& chunk);

  Context context_;
  EncodeOptions options_;
  int rank_;
  bool ordered_;
  Schedule schedule_;
  std::vector<Chunk> chunks_;
  uint64_t nonzeros_ = 0, listed_in_sums_ = 0;
};

RecursiveDoubling::RecursiveDoubling(const Context& context, const EncodeOptions& options)
    : context_(context),
      options_(options),
      rank_(context.transport.rank()),
      ordered_(context.transport.traits().ordered),
      schedule_(rank_, context.transport.size()) {
  for (const WordRange range : chunk_ranges(context, 1)) {
    Chunk& chunk = chunks_.emplace_back();
    chunk.number = static_cast<uint8_t>(chunks_.size() - 1);
    chunk.range = range;
    chunk.shard = context.placement->shard(0, range);
  }
  std::erase_if(chunks_, [](const Chunk& chunk) { return chunk.shard.slots == 0; });
}

void RecursiveDoubling::prepare() {
  const int phase = schedule_.in_pair() ? 0 : 1;
  for (Chunk& chunk : chunks_) {
    Selection selection;
    {
      const StageScope scope(context_.observer, Stage::select);
      selection = context_.device.select(context_.gradient, *context_.placement, chunk.range);
    }
    nonzeros_ += selection[0].count;
    const StageScope scope(context_.observer, Stage::encode);
    chunk.running =
        context_.device.encode(std::move(selection), options_, identity(chunk, phase, rank_))[0];
  }
}

void RecursiveDoubling::post() {
  const StageScope scope(context_.observer, Stage::push);
  const int first = schedule_.first_phase(), last = schedule_.last_phase();
  // All receives go first, or the link would be used one way at a time.
  for (int phase = first; phase <= (ordered_ ? first : last); ++phase)
    for (Chunk& chunk : chunks_) expect(chunk, phase);
  if (first <= last)
    for (Chunk& chunk : chunks_) send(chunk, first);
}

void RecursiveDoubling::finish() {
  for (int phase = schedule_.first_phase(); phase <= schedule_.last_phase(); ++phase)
    for (Chunk& chunk : chunks_) {
      take(chunk, phase);
      if (phase == schedule_.last_phase()) continue;
      const StageScope scope(context_.observer, Stage::push);
      if (ordered_) expect(chunk, phase + 1);
      send(chunk, phase + 1);
    }
  for (Chunk& chunk : chunks_) decode(chunk);
}

void RecursiveDoubling::expect(Chunk& chunk, int phase) {
  std::vector<Expected> from;
  const int peer = schedule_.receives_from(phase);
  if (peer != kNobody)
    from.push_back({peer, max_message_bytes(chunk.shard, dtype_of(peer, phase), options_.choice)});
  const Tag tag{context_.layout, context_.sequence, static_cast<uint8_t>(phase), chunk.number};
  chunk.tickets.push_back(context_.transport.expect(tag, from));
}

void RecursiveDoubling::send(Chunk& chunk, int phase) {
  std::vector<Outgoing> messages;
  const int peer = schedule_.sends_to(phase);
  if (peer != kNobody) messages.push_back({peer, chunk.running});
  context_.transport.send(chunk.tickets[phase - schedule_.first_phase()], messages);
}

void RecursiveDoubling::take(Chunk& chunk, int phase) {
  std::vector<Buffer> received;
  {
    const StageScope scope(context_.observer, Stage::push);
    received = context_.transport.wait(chunk.tickets[phase - schedule_.first_phase()]);
  }
  if (received.empty()) return;
  if (schedule_.sits_out()) {
    chunk.running = received[0];
    return;
  }
  const int peer = schedule_.receives_from(phase);
  Incoming lower = incoming(chunk, std::exchange(chunk.running, {}), phase, rank_);
  Incoming higher = incoming(chunk, received[0], phase, peer);
  if (peer < rank_) std::swap(lower, higher);
  add(chunk, phase, std::vector{lower, higher});
}

// Leaves the sum in chunk.running, as what this rank sends in the next phase.
void RecursiveDoubling::add(Chunk& chunk, int phase, std::span<const Incoming> in_rank_order) {
  const StageScope scope(context_.observer, Stage::reduce);
  const bool last = phase >= schedule_.steps();
  chunk.running =
      context_.device
          .merge(in_rank_order, chunk.shard, last ? context_.gradient.dtype : DType::f32,
                 last ? context_.divisor : 1, options_, identity(chunk, phase + 1, rank_))
          .message;
}

void RecursiveDoubling::decode(Chunk& chunk) {
  const int result_phase = schedule_.steps() + 1;
  if (schedule_.steps() == 0)  // a single rank: nothing to add, but the division is due
    add(chunk, 0, std::vector{incoming(chunk, std::exchange(chunk.running, {}), 1, rank_)});
  const StageScope scope(context_.observer, Stage::decode);
  const int source = schedule_.sits_out() ? rank_ - 1 : rank_;
  const Update update{std::exchange(chunk.running, {}), identity(chunk, result_phase, source),
                      chunk.shard};
  listed_in_sums_ += context_.device.decode_write({&update, 1}, context_.gradient);
}

Identity RecursiveDoubling::identity(const Chunk& chunk, int phase, int source) const {
  return {context_.layout, context_.sequence, static_cast<uint8_t>(phase), chunk.number,
          static_cast<uint16_t>(source)};
}

}  // namespace

std::unique_ptr<Exchange> make_recursive_doubling(const Context& context,
                                                  const EncodeOptions& options) {
  return std::make_unique<RecursiveDoubling>(context, options);
}

}  // namespace zen
