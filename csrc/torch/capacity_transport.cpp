// Messages by point-to-point operations, received into buffers of the posted capacity.
#include <algorithm>
#include <unordered_map>

#include "core/message.h"
#include "torch/c10d_transport.h"
#include "torch/tag.h"

namespace zen {

namespace {

class CapacityTransport final : public C10dTransport {
 public:
  CapacityTransport(ProcessGroup group, Memory memory)
      : C10dTransport(std::move(group), std::move(memory)) {}

  Traits traits() const override {
    return {.ordered = false, .exact_sizes = false, .max_chunks = 4};
  }
  Ticket expect(const Tag& tag, std::span<const Expected> from) override;
  void send(Ticket ticket, std::span<const Outgoing> messages) override;
  std::vector<Buffer> wait(Ticket ticket) override;

 private:
  struct Transfer {
    int peer;
    Buffer buffer;  // lives as long as the work
    GroupWork work;
    bool bare = false;  // as in Expected
  };
  struct Open {
    int tag;
    std::vector<Transfer> receives, sends;
  };

  // How many ranks further the peer is, on the circle of all ranks.
  int ahead(int peer) const { return (peer - rank() + size()) % size(); }

  std::unordered_map<Ticket, Open> open_;
  Ticket next_ = 0;
};

Ticket CapacityTransport::expect(const Tag& tag, std::span<const Expected> from) {
  const Ticket ticket = next_++;
  Open& open = open_[ticket];
  open.tag = pack(tag);
  open.receives.reserve(from.size());
  for (const Expected& expected : from) {
    Transfer& receive =
        open.receives.emplace_back(expected.peer, allocate(expected.capacity), nullptr);
    receive.bare = expected.bare;
    std::vector<at::Tensor> tensors{tensor_of(receive.buffer)};
    receive.work = guarded("receiving from rank " + std::to_string(expected.peer),
                           [&] { return group().recv(tensors, expected.peer, open.tag); });
  }
  return ticket;
}

// The next rank comes first. If all began with rank 0 its link would be full and the others idle.
void CapacityTransport::send(Ticket ticket, std::span<const Outgoing> messages) {
  Open& open = open_.at(ticket);
  open.sends.reserve(messages.size());
  for (const auto& [peer, message] : messages) open.sends.emplace_back(peer, message, nullptr);
  std::ranges::sort(open.sends, {}, [this](const Transfer& send) { return ahead(send.peer); });
  for (Transfer& send : open.sends) {
    std::vector<at::Tensor> tensors{tensor_of(send.buffer)};
    send.work = guarded("sending to rank " + std::to_string(send.peer),
                        [&] { return group().send(tensors, send.peer, open.tag); });
    traffic_.bytes_out += send.buffer.bytes;
  }
}

std::vector<Buffer> CapacityTransport::wait(Ticket ticket) {
  Open& open = open_.at(ticket);
  std::vector<Buffer> messages;
  messages.reserve(open.receives.size());
  for (Transfer& receive : open.receives) {
    guarded("waiting for rank " + std::to_string(receive.peer), [&] { receive.work->wait(); });
    traffic_.bytes_in += receive.bare ? receive.buffer.bytes : message_bytes(receive.buffer.span());
    messages.push_back(receive.buffer);
  }
  for (Transfer& send : open.sends)
    guarded("sending to rank " + std::to_string(send.peer), [&] { send.work->wait(); });
  open_.erase(ticket);
  return messages;
}

}  // namespace

std::unique_ptr<C10dTransport> make_capacity_transport(ProcessGroup group, Memory memory) {
  return std::make_unique<CapacityTransport>(std::move(group), std::move(memory));
}

}  // namespace zen
