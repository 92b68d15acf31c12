// Messages by collectives of exact sizes: an all-to-all of the sizes, then an all-to-all-v.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cstring>
#include <numeric>
#include <unordered_map>

#include "core/error.h"
#include "torch/c10d_transport.h"
#include "torch/compat.h"

namespace zen {

namespace {

using Sizes = std::vector<int64_t>;  // one per rank

size_t sum(const Sizes& sizes) {
  return static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
}

class ExactTransport final : public C10dTransport {
 public:
  ExactTransport(ProcessGroup group, Allocate allocate)
      : C10dTransport(std::move(group), std::move(allocate)) {}

  Traits traits() const override { return {.ordered = true, .exact_sizes = true, .max_chunks = 1}; }
  Ticket expect(const Tag& tag, std::span<const Expected> from) override;
  void send(Ticket ticket, std::span<const Outgoing> messages) override;
  std::vector<Buffer> wait(Ticket ticket) override;

 private:
  struct Open {
    std::vector<Expected> from;
    Sizes sizes;                // of the incoming messages
    Buffer incoming, outgoing;  // all messages one after the other, in rank order
    GroupWork work;
  };

  Buffer concatenate(std::span<const Outgoing> messages, Sizes& sizes) const;
  Sizes exchange_sizes(const Sizes& outgoing) const;
  void check_sizes(const Open& open) const;

  std::unordered_map<Ticket, Open> open_;
  Ticket next_ = 0;
};

// The tag is not needed: collectives match by their order.
Ticket ExactTransport::expect(const Tag&, std::span<const Expected> from) {
  open_[next_].from.assign(from.begin(), from.end());
  return next_++;
}

void ExactTransport::send(Ticket ticket, std::span<const Outgoing> messages) {
  Open& open = open_.at(ticket);
  Sizes out_sizes(size(), 0);
  open.outgoing = concatenate(messages, out_sizes);
  open.sizes = exchange_sizes(out_sizes);
  check_sizes(open);
  open.incoming = allocate(sum(open.sizes));
  at::Tensor in = tensor_of(open.outgoing), out = tensor_of(open.incoming);
  open.work = guarded("exchanging messages with all ranks",
                      [&] { return compat::all_to_all(group(), out, in, open.sizes, out_sizes); });
  traffic_.bytes_out += open.outgoing.bytes;
  traffic_.bytes_in += open.incoming.bytes;
}

std::vector<Buffer> ExactTransport::wait(Ticket ticket) {
  Open& open = open_.at(ticket);
  guarded("exchanging messages with all ranks", [&] { open.work->wait(); });
  std::vector<Buffer> messages;
  messages.reserve(open.from.size());
  for (const Expected& expected : open.from) {
    const auto before = open.sizes.begin() + expected.peer;
    const auto offset = std::accumulate(open.sizes.begin(), before, int64_t{0});
    messages.push_back(
        open.incoming.slice(static_cast<size_t>(offset), static_cast<size_t>(*before)));
  }
  open_.erase(ticket);
  return messages;
}

// In rank order, as all-to-all-v wants them.
Buffer ExactTransport::concatenate(std::span<const Outgoing> messages, Sizes& sizes) const {
  std::vector<const Outgoing*> by_rank(size(), nullptr);
  for (const Outgoing& outgoing : messages) {
    by_rank[outgoing.peer] = &outgoing;
    sizes[outgoing.peer] = static_cast<int64_t>(outgoing.message.bytes);
  }
  Buffer all = allocate(sum(sizes));
  std::byte* next = all.data;
  for (const Outgoing* outgoing : by_rank) {
    if (outgoing == nullptr) continue;
    std::memcpy(next, outgoing->message.data, outgoing->message.bytes);
    next += outgoing->message.bytes;
  }
  return all;
}

Sizes ExactTransport::exchange_sizes(const Sizes& outgoing) const {
  at::Tensor in = at::empty({size()}, at::kLong), out = at::empty_like(in);
  std::copy(outgoing.begin(), outgoing.end(), in.mutable_data_ptr<int64_t>());
  guarded("exchanging sizes with all ranks",
          [&] { compat::all_to_all(group(), out, in, {}, {})->wait(); });
  const int64_t* sizes = out.const_data_ptr<int64_t>();
  return {sizes, sizes + size()};
}

// Nothing is received that was not expected, and everything that was.
void ExactTransport::check_sizes(const Open& open) const {
  std::vector<size_t> capacity(size(), 0);
  for (const Expected& expected : open.from) capacity[expected.peer] = expected.capacity;
  for (int peer = 0; peer < size(); ++peer) {
    const auto bytes = static_cast<size_t>(open.sizes[peer]);
    if (bytes > capacity[peer] || (bytes == 0) != (capacity[peer] == 0))
      throw TransportError("rank " + std::to_string(peer) + " sends " + std::to_string(bytes) +
                           " bytes where this rank expects at most " +
                           std::to_string(capacity[peer]));
  }
}

}  // namespace

std::unique_ptr<C10dTransport> make_exact_transport(ProcessGroup group, Allocate allocate) {
  return std::make_unique<ExactTransport>(std::move(group), std::move(allocate));
}

}  // namespace zen
