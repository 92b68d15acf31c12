// AGsparse, as PyTorch's sparse all-reduce over gloo does it: everybody sends its index-value pairs
// to everybody and adds all of them itself. No rank saves another any work or any byte.
#include <utility>

#include "schemes/chunks.h"
#include "schemes/list.h"

namespace zen {
namespace {

struct Chunk {
  uint8_t number = 0;
  WordRange range;
  Shard shard;
  Buffer own;
  Ticket ticket = 0;
};

class Agsparse final : public Exchange {
 public:
  explicit Agsparse(const Context& context);

  void prepare() override;
  void post() override;
  void finish() override;
  Report report() const override { return {nonzeros_, listed_in_sum_, 1}; }

 private:
  Identity identity(const Chunk& chunk, int source) const;
  void add_and_write(Chunk& chunk, std::vector<Buffer> received);

  Context context_;
  int rank_, size_;
  std::vector<Chunk> chunks_;
  uint64_t nonzeros_ = 0, listed_in_sum_ = 0;
};

Agsparse::Agsparse(const Context& context)
    : context_(context), rank_(context.transport.rank()), size_(context.transport.size()) {
  for (const WordRange range : chunk_ranges(context, 1)) {
    const auto number = static_cast<uint8_t>(chunks_.size());
    chunks_.push_back({number, range, context.placement->shard(0, range), {}, 0});
  }
  std::erase_if(chunks_, [](const Chunk& chunk) { return chunk.shard.slots == 0; });
}

void Agsparse::prepare() {
  for (Chunk& chunk : chunks_) {
    Selection selection;
    {
      const StageScope scope(context_.observer, Stage::select);
      selection = context_.device.select(context_.gradient, *context_.placement, chunk.range);
    }
    nonzeros_ += selection[0].count;
    const StageScope scope(context_.observer, Stage::encode);
    chunk.own =
        context_.device.encode(std::move(selection), Choice::coo, identity(chunk, rank_))[0];
  }
}

void Agsparse::post() {
  const StageScope scope(context_.observer, Stage::push);
  for (Chunk& chunk : chunks_) {
    const size_t capacity = max_message_bytes(chunk.shard, context_.gradient.dtype, Choice::coo);
    std::vector<Expected> from;
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_) from.push_back({peer, capacity});
    const Tag tag{context_.layout, context_.sequence, 0, chunk.number};
    chunk.ticket = context_.transport.expect(tag, from);
  }
  for (const Chunk& chunk : chunks_) {
    std::vector<Outgoing> messages;
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_) messages.push_back({peer, chunk.own});
    context_.transport.send(chunk.ticket, messages);
  }
}

void Agsparse::finish() {
  for (Chunk& chunk : chunks_) {
    std::vector<Buffer> received;
    {
      const StageScope scope(context_.observer, Stage::push);
      received = context_.transport.wait(chunk.ticket);
    }
    add_and_write(chunk, std::move(received));
  }
}

void Agsparse::add_and_write(Chunk& chunk, std::vector<Buffer> received) {
  received.insert(received.begin() + rank_, std::exchange(chunk.own, {}));
  const DType dtype = context_.gradient.dtype;
  std::vector<Incoming> by_rank;
  by_rank.reserve(received.size());
  for (int source = 0; source < size_; ++source)
    by_rank.push_back({received[source], identity(chunk, source), dtype});
  Buffer sum;
  {
    const StageScope scope(context_.observer, Stage::reduce);
    // The sum stays on this rank, so it takes the index that is quickest to write and read.
    sum = context_.device
              .merge(by_rank, chunk.shard, dtype, context_.divisor, Choice::words,
                     identity(chunk, rank_))
              .message;
  }
  const StageScope scope(context_.observer, Stage::decode);
  const Update update{std::move(sum), identity(chunk, rank_), chunk.shard};
  listed_in_sum_ += context_.device.decode_write({&update, 1}, context_.gradient);
}

Identity Agsparse::identity(const Chunk& chunk, int source) const {
  return {context_.layout, context_.sequence, 0, chunk.number, static_cast<uint16_t>(source)};
}

}  // namespace

Scheme agsparse() {
  return {.name = "agsparse",
          .has_placement = true,
          .placement = PlacementKind::whole,
          .travel = Travel::everybody,
          .push = Choice::coo,
          .pull = Choice::coo,
          .make = [](const Context& context) -> std::unique_ptr<Exchange> {
            return std::make_unique<Agsparse>(context);
          }};
}

}  // namespace zen
