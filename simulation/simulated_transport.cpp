#include "simulation/simulated_transport.h"

#include <algorithm>
#include <cstring>
#include <simgrid/s4u.hpp>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/error.h"

namespace zen::simulation {

namespace {

namespace sg4 = simgrid::s4u;

class SimulatedTransport final : public Transport {
 public:
  SimulatedTransport(Group& group, int rank) : group_(group), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_.size; }
  Traits traits() const override {
    return {.ordered = false, .exact_sizes = true, .max_chunks = 4};
  }
  Ticket expect(const Tag& tag, std::span<const Expected> from) override;
  void send(Ticket ticket, std::span<const Outgoing> messages) override;
  std::vector<Buffer> wait(Ticket ticket) override;
  void all_reduce(const Buffer&, DType, Reduce) override {
    throw InvalidArgument("the simulated transport has no all-reduce of its own: use the formula");
  }
  void agree(uint64_t fingerprint, const std::string& description) override;
  // A rank that fails ends by its exception, and the run with it.
  void fail() noexcept override {}
  Traffic traffic() const override { return traffic_; }

 private:
  struct Receive {
    Expected expected;
    std::unique_ptr<Buffer*> arrived;  // SimGrid writes it
    sg4::CommPtr comm;
  };
  struct Open {
    Tag tag;
    std::vector<Receive> receives;
    std::vector<sg4::CommPtr> sends;
  };

  // One message at a time travels through a mailbox, so that sends and receives meet by tag.
  static sg4::Mailbox* mailbox(int from, int to, const Tag& tag);
  void count(int phase, int to, uint64_t bytes);

  Group& group_;
  int rank_;
  std::unordered_map<Ticket, Open> open_;
  Ticket next_ = 0;
  Traffic traffic_;
};

sg4::Mailbox* SimulatedTransport::mailbox(int from, int to, const Tag& tag) {
  std::string name;
  for (const uint64_t part : {uint64_t(from), uint64_t(to), uint64_t{tag.layout},
                              uint64_t{tag.sequence}, uint64_t{tag.phase}, uint64_t{tag.chunk}})
    name += std::to_string(part) + ".";
  return sg4::Mailbox::by_name(name);
}

Ticket SimulatedTransport::expect(const Tag& tag, std::span<const Expected> from) {
  const Ticket ticket = next_++;
  Open& open = open_[ticket];
  open.tag = tag;
  for (const Expected& expected : from) {
    Receive& receive =
        open.receives.emplace_back(Receive{expected, std::make_unique<Buffer*>(nullptr), nullptr});
    receive.comm = mailbox(expected.peer, rank_, tag)->get_async<Buffer>(receive.arrived.get());
  }
  return ticket;
}

void SimulatedTransport::send(Ticket ticket, std::span<const Outgoing> messages) {
  Open& open = open_.at(ticket);
  for (const auto& [peer, message] : messages) {
    const auto bytes = static_cast<uint64_t>(static_cast<double>(message.bytes) * group_.scale);
    count(open.tag.phase, peer, message.bytes);
    open.sends.push_back(mailbox(rank_, peer, open.tag)
                             ->put_async(new Buffer(message), std::max<uint64_t>(1, bytes)));
    traffic_.bytes_out += message.bytes;
  }
}

std::vector<Buffer> SimulatedTransport::wait(Ticket ticket) {
  Open& open = open_.at(ticket);
  std::vector<Buffer> messages;
  for (Receive& receive : open.receives) {
    receive.comm->wait();
    const std::unique_ptr<Buffer> message(*receive.arrived);
    if (message->bytes > receive.expected.capacity)
      throw TransportError("rank " + std::to_string(receive.expected.peer) + " sent " +
                           std::to_string(message->bytes) + " bytes where " +
                           std::to_string(receive.expected.capacity) + " were expected");
    traffic_.bytes_in += message->bytes;
    messages.push_back(*message);
  }
  for (const sg4::CommPtr& comm : open.sends) comm->wait();
  open_.erase(ticket);
  return messages;
}

void SimulatedTransport::count(int phase, int to, uint64_t bytes) {
  const auto ranks = static_cast<size_t>(group_.size);
  std::vector<uint64_t>&out = group_.load.out[phase], &in = group_.load.in[phase];
  out.resize(ranks);
  in.resize(ranks);
  out[static_cast<size_t>(rank_)] += bytes;
  in[static_cast<size_t>(to)] += bytes;
}

void SimulatedTransport::agree(uint64_t fingerprint, const std::string& description) {
  const Tag tag{.layout = 0, .sequence = 0, .phase = 255, .chunk = 255};
  std::vector<Expected> from;
  std::vector<Outgoing> messages;
  const auto owner = std::make_shared<uint64_t>(fingerprint);
  const Buffer mine{reinterpret_cast<std::byte*>(owner.get()), sizeof(uint64_t), owner};
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    from.push_back({peer, sizeof(uint64_t)});
    messages.push_back({peer, mine});
  }
  const Ticket ticket = expect(tag, from);
  send(ticket, messages);
  for (const Buffer& theirs : wait(ticket))
    if (std::memcmp(theirs.data, mine.data, sizeof(uint64_t)) != 0)
      throw TransportError("rank " + std::to_string(rank_) + " means " + description +
                           ", another rank something else");
}

}  // namespace

double port_load_seconds(const Group& group, const Link& link) {
  double seconds = 0;
  for (const auto& [phase, out] : group.load.out) {
    const std::vector<uint64_t>& in = group.load.in.at(phase);
    const uint64_t most = std::max(std::ranges::max(out), std::ranges::max(in));
    seconds += static_cast<double>(most) * group.scale / link.bytes_per_second;
    seconds += link.latency_seconds;
  }
  return seconds;
}

std::unique_ptr<Transport> make_simulated_transport(Group& group, int rank) {
  return std::make_unique<SimulatedTransport>(group, rank);
}

}  // namespace zen::simulation
