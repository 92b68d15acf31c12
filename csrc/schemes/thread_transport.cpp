#include "schemes/thread_transport.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <tuple>

#include "core/error.h"

namespace zen {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kGarbageBytes = 4096;  // written behind a message: enough to upset any parser

// A direction and a tag: what a message and a receive must agree on.
using Address = std::tuple<int, int, uint32_t, uint32_t, uint8_t, uint8_t>;

Address address(int from, int to, const Tag& tag) {
  return {from, to, tag.layout, tag.sequence, tag.phase, tag.chunk};
}

std::string describe(const Tag& tag) {
  return "bucket " + std::to_string(tag.sequence) + ", phase " + std::to_string(tag.phase) +
         ", chunk " + std::to_string(tag.chunk) + ", layout " + std::to_string(tag.layout);
}

// Seeded, and independent of the threads' timing, so that a failing schedule can be run again.
uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

uint64_t hash_of(uint64_t seed, const Address& a) {
  const auto& [from, to, layout, sequence, phase, chunk] = a;
  const uint64_t who = static_cast<uint64_t>(from) << 32 | static_cast<uint32_t>(to);
  const uint64_t what = uint64_t{sequence} << 16 | uint64_t{phase} << 8 | chunk;
  return mix(mix(mix(seed + 0x9e3779b97f4a7c15u) ^ who) ^ (what ^ uint64_t{layout} << 48));
}

Buffer new_buffer(size_t bytes) {
  constexpr std::align_val_t kAlign{64};
  auto* data = static_cast<std::byte*>(::operator new(std::max<size_t>(bytes, 1), kAlign));
  return {data, bytes, {data, [](std::byte* p) { ::operator delete(p, kAlign); }}};
}

template <class T>
void reduce_into(std::span<const Buffer> ranks, Reduce reduce) {
  const size_t count = ranks[0].bytes / sizeof(T);
  for (size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (const Buffer& rank : ranks) sum += to_float(reinterpret_cast<const T*>(rank.data)[i]);
    if (reduce == Reduce::mean) sum /= static_cast<float>(ranks.size());
    const T result = from_float<T>(sum);
    for (const Buffer& rank : ranks) reinterpret_cast<T*>(rank.data)[i] = result;
  }
}

// What one rank announced with expect().
struct Operation {
  Tag tag;
  std::vector<int> from;
  std::vector<Buffer> received;  // in the order of `from`
  std::vector<int> waiting_for;  // peers that have not yet taken or delivered a message
  bool sent = false;
  Clock::time_point arrival;  // of the last message

  void settle(int peer) { waiting_for.erase(std::ranges::find(waiting_for, peer)); }
};

struct Posted {
  std::shared_ptr<Operation> operation;
  size_t index;
  size_t capacity;
};

struct Sent {
  std::shared_ptr<Operation> operation;
  Buffer message;
};

// One of the two queues is always empty.
struct Channel {
  std::deque<Posted> posted;
  std::deque<Sent> sent;
};

// One collective call. The ranks' calls are lined up by their number.
struct Meeting {
  uint64_t number = 0;
  int first = 0;  // the rank that came first, and its call
  std::string call;
  int arrived = 0;
  std::vector<Buffer> data;  // all_reduce
  std::vector<uint64_t> fingerprints;
  std::vector<std::string> descriptions;
};

}  // namespace

class ThreadGroup::State {
 public:
  State(int size, const ThreadOptions& options)
      : size(size), options(options), wakeups(size), members(size) {}

  struct Member {
    std::map<Ticket, std::shared_ptr<Operation>> operations;
    Ticket next_ticket = 0;
    uint64_t meetings = 0;
    uint64_t calls = 0;
    std::optional<uint64_t> fault;
    Traffic traffic;
  };

  using Lock = std::unique_lock<std::mutex>;

  // Counts the call. Throws if it is the one to fail.
  Lock enter(int rank) {
    Lock lock(mutex);
    Member& member = members[rank];
    if (member.fault == member.calls++)
      throw TransportError("rank " + std::to_string(rank) + " failed on purpose at its call " +
                           std::to_string(*member.fault));
    return lock;
  }

  void check_alive() const {
    if (!death.empty()) throw TransportError(death);
  }

  // The first cause of death is the one that everybody reports.
  void die(const std::string& cause) {
    if (death.empty()) death = cause;
    for (auto& wakeup : wakeups) wakeup.notify_all();
  }

  [[noreturn]] void die_and_throw(const std::string& cause) {
    die(cause);
    throw TransportError(cause);
  }

  // Sleeps until done(). Throws if the group dies first; kills it if the time is up.
  template <class Done, class Missing>
  void sleep_until(Lock& lock, int rank, const Done& done, const Missing& missing) {
    const auto deadline = Clock::now() + options.timeout;
    while (!done()) {
      check_alive();
      if (wakeups[rank].wait_until(lock, deadline) == std::cv_status::timeout && !done())
        die_and_throw("rank " + std::to_string(rank) + " waited " +
                      std::to_string(options.timeout.count()) + " ms for " + missing());
    }
  }

  // Lines up this rank's next collective call with the other ranks'.
  std::shared_ptr<Meeting> meet(int rank, const std::string& call) {
    check_alive();
    const uint64_t number = members[rank].meetings++;
    const auto [found, is_first] = meetings.try_emplace(number, std::make_shared<Meeting>());
    const std::shared_ptr<Meeting> meeting = found->second;
    if (is_first) {
      meeting->number = number;
      meeting->first = rank;
      meeting->call = call;
    }
    if (meeting->call != call)
      die_and_throw("collective call " + std::to_string(number) + ": rank " + std::to_string(rank) +
                    " called " + call + ", rank " + std::to_string(meeting->first) + " called " +
                    meeting->call);
    if (++meeting->arrived == size) {
      meetings.erase(found);
      for (auto& wakeup : wakeups) wakeup.notify_all();
    }
    return meeting;
  }

  void sleep_until_all_meet(Lock& lock, int rank, const Meeting& meeting) {
    sleep_until(
        lock, rank, [&] { return meeting.arrived == size; },
        [&] { return absent(meeting.number) + " to call " + meeting.call; });
  }

  std::string absent(uint64_t number) const {
    std::string ranks;
    for (int r = 0; r < size; ++r)
      if (members[r].meetings <= number) ranks += (ranks.empty() ? "" : ", ") + std::to_string(r);
    return "rank " + ranks;
  }

  // Moves a message to its receive if both are there.
  void match(const Address& where) {
    const auto found = channels.find(where);
    Channel& channel = found->second;
    if (channel.posted.empty() || channel.sent.empty()) return;
    const Posted posted = std::move(channel.posted.front());
    const Sent sent = std::move(channel.sent.front());
    channel.posted.pop_front();
    channel.sent.pop_front();
    if (channel.posted.empty() && channel.sent.empty()) channels.erase(found);
    deliver(where, posted, sent);
  }

  const int size;
  const ThreadOptions options;
  std::mutex mutex;
  std::vector<std::condition_variable> wakeups;  // one per rank
  std::vector<Member> members;
  std::map<Address, Channel> channels;
  std::map<uint64_t, std::shared_ptr<Meeting>> meetings;  // those that somebody has not reached
  std::string death;                                      // empty while the group lives

 private:
  void deliver(const Address& where, const Posted& posted, const Sent& sent) {
    const int from = std::get<0>(where), to = std::get<1>(where);
    const size_t bytes = sent.message.bytes;
    if (bytes > posted.capacity)
      return die("rank " + std::to_string(from) + " sent " + std::to_string(bytes) +
                 " bytes to rank " + std::to_string(to) + ", which had room for " +
                 std::to_string(posted.capacity) + " (" + describe(posted.operation->tag) + ")");
    const size_t length = options.traits.exact_sizes ? bytes : posted.capacity;
    Buffer copy = new_buffer(length);
    std::memcpy(copy.data, sent.message.data, bytes);
    std::memset(copy.data + bytes, 0xa5, std::min(length - bytes, kGarbageBytes));
    posted.operation->received[posted.index] = std::move(copy);
    posted.operation->settle(from);
    sent.operation->settle(to);
    members[to].traffic.bytes_in += bytes;
    const auto range = static_cast<uint64_t>(options.max_delay.count()) + 1;
    const std::chrono::microseconds delay(hash_of(options.seed, where) % range);
    posted.operation->arrival = std::max(posted.operation->arrival, Clock::now() + delay);
    wakeups[from].notify_all();
    wakeups[to].notify_all();
  }
};

class ThreadGroup::Endpoint final : public Transport {
 public:
  Endpoint(State& state, int rank) : state_(state), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return state_.size; }
  Traits traits() const override { return state_.options.traits; }

  Ticket expect(const Tag& tag, std::span<const Expected> from) override {
    const auto lock = state_.enter(rank_);
    check_peers(from);
    meet_if_ordered("expect", tag);
    state_.check_alive();
    const Ticket ticket = self().next_ticket++;
    auto operation = std::make_shared<Operation>();
    operation->tag = tag;
    operation->received.resize(from.size());
    self().operations[ticket] = operation;
    for (const Expected& expected : from) operation->waiting_for.push_back(expected.peer);
    operation->from = operation->waiting_for;
    for (size_t i = 0; i < from.size(); ++i) {
      const Address where = address(from[i].peer, rank_, tag);
      state_.channels[where].posted.push_back({operation, i, from[i].capacity});
      state_.match(where);
    }
    return ticket;
  }

  void send(Ticket ticket, std::span<const Outgoing> messages) override {
    auto lock = state_.enter(rank_);
    check_peers(messages);
    const auto operation = find(ticket);
    if (operation->sent) throw InvalidArgument("ticket " + std::to_string(ticket) + " sent twice");
    for (const Outgoing& outgoing : messages)
      if (outgoing.message.bytes == 0)
        throw InvalidArgument("empty message to rank " + std::to_string(outgoing.peer));
    state_.check_alive();
    operation->sent = true;
    for (const Outgoing& outgoing : messages) operation->waiting_for.push_back(outgoing.peer);
    for (const Outgoing& outgoing : messages) {
      const Address where = address(rank_, outgoing.peer, operation->tag);
      self().traffic.bytes_out += outgoing.message.bytes;
      state_.channels[where].sent.push_back({operation, outgoing.message});
      state_.match(where);
    }
    if (traits().ordered) exchange_all(lock, *operation);
  }

  std::vector<Buffer> wait(Ticket ticket) override {
    auto lock = state_.enter(rank_);
    const auto operation = find(ticket);
    if (!operation->sent)
      throw InvalidArgument("ticket " + std::to_string(ticket) + " waited for before send");
    state_.sleep_until(
        lock, rank_, [&] { return operation->waiting_for.empty(); },
        [&] {
          return "rank " + std::to_string(operation->waiting_for.front()) + " (" +
                 describe(operation->tag) + ")";
        });
    while (Clock::now() < operation->arrival)
      state_.wakeups[rank_].wait_until(lock, operation->arrival);
    self().operations.erase(ticket);
    return std::move(operation->received);
  }

  void all_reduce(const Buffer& data, DType dtype, Reduce reduce) override {
    auto lock = state_.enter(rank_);
    const std::string call = "all_reduce of " + std::to_string(data.bytes) + " bytes of " +
                             name_of(dtype) + (reduce == Reduce::mean ? " (mean)" : " (sum)");
    const auto meeting = state_.meet(rank_, call);
    meeting->data.resize(state_.size);
    meeting->data[rank_] = data;
    if (meeting->arrived == state_.size)
      with_type(dtype, [&]<class T>(T) { reduce_into<T>(meeting->data, reduce); });
    const uint64_t moved = ring_all_reduce_bytes(data.bytes, state_.size);
    self().traffic.bytes_out += moved;
    self().traffic.bytes_in += moved;
    state_.sleep_until_all_meet(lock, rank_, *meeting);
  }

  void agree(uint64_t fingerprint, const std::string& description) override {
    auto lock = state_.enter(rank_);
    const auto meeting = state_.meet(rank_, "agree");
    meeting->fingerprints.push_back(fingerprint);
    meeting->descriptions.resize(state_.size);
    meeting->descriptions[rank_] = description.substr(0, kDescriptionBytes);
    state_.sleep_until_all_meet(lock, rank_, *meeting);
    const auto& all = meeting->fingerprints;
    if (std::ranges::count(all, all[0]) == state_.size) return;
    std::string text = "the ranks disagree about the bucket:";
    for (int r = 0; r < state_.size; ++r)
      text += "\n  rank " + std::to_string(r) + ": " + meeting->descriptions[r];
    throw Disagreement(text);
  }

  void fail() noexcept override {
    const State::Lock lock(state_.mutex);
    state_.die("rank " + std::to_string(rank_) + " of " + std::to_string(state_.size) + " failed");
  }

  Traffic traffic() const override {
    const State::Lock lock(state_.mutex);
    return state_.members[rank_].traffic;
  }

 private:
  State::Member& self() { return state_.members[rank_]; }

  std::shared_ptr<Operation> find(Ticket ticket) {
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

  void meet_if_ordered(const char* call, const Tag& tag) {
    if (traits().ordered) state_.meet(rank_, std::string(call) + " (" + describe(tag) + ")");
  }

  // The collective half of an ordered send: afterwards every message of the ticket has arrived.
  void exchange_all(State::Lock& lock, const Operation& operation) {
    const auto meeting = state_.meet(rank_, "send (" + describe(operation.tag) + ")");
    state_.sleep_until_all_meet(lock, rank_, *meeting);
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
