// Messages by collectives of exact sizes: an all-to-all of the sizes, then an all-to-all-v.
//
// Messages begin at multiples of 8 bytes in both buffers, as a GPU reads them: the bytes between
// two messages are zeros.
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

Sizes with_padding(Sizes sizes) {
  for (int64_t& size : sizes) size = (size + 7) / 8 * 8;
  return sizes;
}

class ExactTransport final : public C10dTransport {
 public:
  ExactTransport(ProcessGroup group, Memory memory)
      : C10dTransport(std::move(group), std::move(memory)) {}

  Traits traits() const override { return {.ordered = true, .exact_sizes = true, .max_chunks = 1}; }
  Ticket expect(const Tag& tag, std::span<const Expected> from) override;
  void send(Ticket ticket, std::span<const Outgoing> messages) override;
  std::vector<Buffer> wait(Ticket ticket) override;

 private:
  struct Open {
    std::vector<Expected> from;
    Sizes sizes;                // of the incoming messages
    Buffer incoming, outgoing;  // all messages, padded, one after the other in rank order
    GroupWork work;
  };

  Buffer concatenate(std::span<const Outgoing> messages, const Sizes& sizes) const;
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
  for (const Outgoing& outgoing : messages)
    out_sizes[outgoing.peer] = static_cast<int64_t>(outgoing.message.bytes);
  open.outgoing = concatenate(messages, out_sizes);
  open.sizes = exchange_sizes(out_sizes);
  check_sizes(open);
  const Sizes padded = with_padding(open.sizes);
  open.incoming = allocate(sum(padded));
  at::Tensor in = tensor_of(open.outgoing), out = tensor_of(open.incoming);
  open.work = guarded("exchanging messages with all ranks", [&] {
    return compat::all_to_all(group(), out, in, padded, with_padding(out_sizes));
  });
  traffic_.bytes_out += sum(out_sizes);
  traffic_.bytes_in += sum(open.sizes);
}

std::vector<Buffer> ExactTransport::wait(Ticket ticket) {
  Open& open = open_.at(ticket);
  guarded("exchanging messages with all ranks", [&] { open.work->wait(); });
  const Sizes padded = with_padding(open.sizes);
  std::vector<Buffer> messages;
  messages.reserve(open.from.size());
  for (const Expected& expected : open.from) {
    const auto offset = std::accumulate(padded.begin(), padded.begin() + expected.peer, int64_t{0});
    messages.push_back(open.incoming.slice(static_cast<size_t>(offset),
                                           static_cast<size_t>(open.sizes[expected.peer])));
  }
  open_.erase(ticket);
  return messages;
}

// In rank order, as all-to-all-v wants them.
Buffer ExactTransport::concatenate(std::span<const Outgoing> messages, const Sizes& sizes) const {
  const Sizes padded = with_padding(sizes);
  Buffer all = allocate(sum(padded));
  at::Tensor bytes = tensor_of(all);
  for (const Outgoing& outgoing : messages) {
    const auto at = padded.begin() + outgoing.peer;
    const int64_t begin = std::accumulate(padded.begin(), at, int64_t{0});
    const int64_t length = sizes[outgoing.peer];
    bytes.narrow(0, begin, length).copy_(tensor_of(outgoing.message), /*non_blocking=*/true);
    if (*at != length) bytes.narrow(0, begin + length, *at - length).zero_();
  }
  return all;
}

Sizes ExactTransport::exchange_sizes(const Sizes& outgoing) const {
  at::Tensor mine = at::empty({size()}, at::kLong);
  std::copy(outgoing.begin(), outgoing.end(), mine.mutable_data_ptr<int64_t>());
  const at::Tensor theirs = guarded("exchanging sizes with all ranks", [&] {
    at::Tensor in = to_memory(mine), out = at::empty_like(in);
    compat::all_to_all(group(), out, in, {}, {})->wait();
    return to_host(out);
  });
  const int64_t* sizes = theirs.const_data_ptr<int64_t>();
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

std::unique_ptr<C10dTransport> make_exact_transport(ProcessGroup group, Memory memory) {
  return std::make_unique<ExactTransport>(std::move(group), std::move(memory));
}

}  // namespace zen
