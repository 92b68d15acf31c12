#include "schemes/thread_transport.h"

#include <algorithm>
#include <set>

#include "core/dense_sum.h"
#include "core/error.h"
#include "schemes/thread_state.h"

namespace zen {

class ThreadGroup::Endpoint final : public Transport {
 public:
  Endpoint(State& state, int rank) : state_(state), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return state_.size; }
  Traits traits() const override { return state_.options.traits; }

  Ticket expect(const Tag& tag, std::span<const Expected> from) override {
    const auto lock = state_.enter(rank_);
    check_peers(from);
    if (traits().ordered) state_.meet(rank_, "expect (" + describe(tag) + ")");
    state_.check_alive();
    const Ticket ticket = self().next_ticket++;
    const auto operation = std::make_shared<ThreadOperation>();
    self().operations[ticket] = operation;
    operation->tag = tag;
    operation->received.resize(from.size());
    for (const Expected& expected : from) operation->waiting_for.push_back(expected.peer);
    for (size_t i = 0; i < from.size(); ++i)
      state_.post(operation, i, from[i].peer, rank_, from[i].capacity);
    return ticket;
  }

  void send(Ticket ticket, std::span<const Outgoing> messages) override {
    auto lock = state_.enter(rank_);
    check_messages(messages);
    const State::Operation operation = find(ticket);
    if (operation->sent) throw InvalidArgument("ticket " + std::to_string(ticket) + " sent twice");
    state_.check_alive();
    operation->sent = true;
    for (const Outgoing& outgoing : messages) operation->waiting_for.push_back(outgoing.peer);
    for (const Outgoing& outgoing : messages)
      state_.send(operation, rank_, outgoing.peer, outgoing.message);
    if (traits().ordered) exchange_all(lock, *operation);
  }

  std::vector<Buffer> wait(Ticket ticket) override {
    auto lock = state_.enter(rank_);
    const State::Operation operation = find(ticket);
    if (!operation->sent)
      throw InvalidArgument("ticket " + std::to_string(ticket) + " waited for before send");
    state_.sleep_until_delivered(lock, rank_, operation);
    self().operations.erase(ticket);
    return std::move(operation->received);
  }

  void all_reduce(const Buffer& data, DType dtype, Reduce reduce) override {
    auto lock = state_.enter(rank_);
    const State::Meeting meeting =
        state_.meet(rank_, "all_reduce of " + std::to_string(data.bytes) + " bytes of " +
                               name_of(dtype) + (reduce == Reduce::mean ? " (mean)" : " (sum)"));
    meeting->data.resize(state_.size);
    meeting->data[rank_] = data;
    if (meeting->arrived == state_.size) {
      const Buffer& result = meeting->data[0];
      const float divisor = reduce == Reduce::mean ? static_cast<float>(state_.size) : 1;
      dense_sum(meeting->data, dtype, divisor, result);
      for (const Buffer& other : std::span(meeting->data).subspan(1))
        std::copy_n(result.data, result.bytes, other.data);
    }
    const uint64_t moved = ring_all_reduce_bytes(data.bytes, state_.size);
    self().traffic.bytes_out += moved;
    self().traffic.bytes_in += moved;
    state_.sleep_until_all_meet(lock, rank_, meeting);
  }

  void agree(uint64_t fingerprint, const std::string& description) override {
    auto lock = state_.enter(rank_);
    const State::Meeting meeting = state_.meet(rank_, "agree");
    meeting->fingerprints.push_back(fingerprint);
    meeting->descriptions.resize(state_.size);
    meeting->descriptions[rank_] = description.substr(0, kDescriptionBytes);
    state_.sleep_until_all_meet(lock, rank_, meeting);
    const auto& all = meeting->fingerprints;
    if (std::ranges::count(all, all[0]) == state_.size) return;
    std::string text = "the ranks disagree about the bucket:";
    for (int r = 0; r < state_.size; ++r)
      text += "\n  rank " + std::to_string(r) + ": " + meeting->descriptions[r];
    throw Disagreement(text);
  }

  void fail() noexcept override {
    const auto lock = state_.lock();
    state_.die("rank " + std::to_string(rank_) + " of " + std::to_string(state_.size) + " failed");
  }

  Traffic traffic() const override {
    const auto lock = state_.lock();
    return state_.members[rank_].traffic;
  }

 private:
  State::Member& self() { return state_.members[rank_]; }

  State::Operation find(Ticket ticket) {
    const auto found = self().operations.find(ticket);
    if (found == self().operations.end())
      throw InvalidArgument("unknown ticket " + std::to_string(ticket));
    return found->second;
  }

  template <class List>
  void check_peers(const List& list) const {
    std::set<int> seen;
    for (const auto& entry : list) {
      const std::string peer = "peer " + std::to_string(entry.peer);
      if (entry.peer < 0 || entry.peer >= state_.size || entry.peer == rank_)
        throw InvalidArgument(peer + " is not another rank of " + std::to_string(state_.size));
      if (!seen.insert(entry.peer).second) throw InvalidArgument(peer + " is listed twice");
    }
  }

  void check_messages(std::span<const Outgoing> messages) const {
    check_peers(messages);
    for (const Outgoing& outgoing : messages)
      if (outgoing.message.bytes == 0)
        throw InvalidArgument("empty message to rank " + std::to_string(outgoing.peer));
  }

  // The collective half of an ordered send: afterwards every message of the ticket has arrived.
  void exchange_all(State::Lock& lock, const ThreadOperation& operation) {
    const State::Meeting meeting = state_.meet(rank_, "send (" + describe(operation.tag) + ")");
    state_.sleep_until_all_meet(lock, rank_, meeting);
    if (!operation.waiting_for.empty())
      state_.die_and_throw("rank " + std::to_string(rank_) + " and rank " +
                           std::to_string(operation.waiting_for.front()) +
                           " disagree whether a message travels between them (" +
                           describe(operation.tag) + ")");
  }

  State& state_;
  const int rank_;
};

ThreadGroup::ThreadGroup(int size, const ThreadOptions& options) {
  if (size < 1) throw InvalidArgument("a group needs at least 1 rank, got " + std::to_string(size));
  state_ = std::make_unique<State>(size, options);
  for (int r = 0; r < size; ++r) endpoints_.push_back(std::make_unique<Endpoint>(*state_, r));
}

ThreadGroup::~ThreadGroup() = default;

int ThreadGroup::size() const {
  return state_->size;
}

Transport& ThreadGroup::transport(int rank) {
  return *endpoints_.at(rank);
}

void ThreadGroup::inject_fault(int rank, uint64_t call) {
  state_->members.at(rank).fault = call;
}

uint64_t ThreadGroup::calls(int rank) const {
  return state_->members.at(rank).calls;
}

}  // namespace zen
