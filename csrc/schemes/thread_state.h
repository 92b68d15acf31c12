// What the threads of a ThreadGroup share, behind one mutex. Internal to thread_transport.cpp.
//
// Messages meet receives in channels, collective calls meet in meetings, and a group dies once.
// Every method needs the lock that enter() returns, and wakes whoever its change concerns.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "schemes/thread_transport.h"

namespace zen {

// What one rank announced with expect().
struct ThreadOperation {
  Tag tag;
  std::vector<Buffer> received;  // in the order of expect()
  std::vector<int> waiting_for;  // peers that have not yet taken or delivered a message
  bool sent = false;
  std::chrono::steady_clock::time_point arrival;  // of the last message

  void settle(int peer) { waiting_for.erase(std::ranges::find(waiting_for, peer)); }
};

// One collective call. The ranks' calls are lined up by their number.
struct ThreadMeeting {
  uint64_t number = 0;
  int first = 0;  // the rank that came first, and its call
  std::string call;
  int arrived = 0;
  std::vector<Buffer> data;  // of all_reduce, by rank
  std::vector<uint64_t> fingerprints;
  std::vector<std::string> descriptions;  // by rank
};

std::string describe(const Tag& tag);

class ThreadGroup::State {
 public:
  using Operation = std::shared_ptr<ThreadOperation>;
  using Meeting = std::shared_ptr<ThreadMeeting>;
  using Lock = std::unique_lock<std::mutex>;

  struct Member {
    std::map<Ticket, Operation> operations;
    Ticket next_ticket = 0;
    uint64_t meetings = 0;
    uint64_t calls = 0;
    std::optional<uint64_t> fault;
    Traffic traffic;
  };

  State(int size, const ThreadOptions& options);

  Lock lock() { return Lock(mutex_); }
  // Counts the call. Throws if it is the one to fail.
  Lock enter(int rank);

  void check_alive() const {
    if (!death_.empty()) throw TransportError(death_);
  }
  // The first cause of death is the one that everybody reports.
  void die(const std::string& cause);
  [[noreturn]] void die_and_throw(const std::string& cause);

  // A receive and a message. Either may come first. REQUIRES: the group is alive.
  void post(const Operation& receiver, size_t index, int from, int to, size_t capacity);
  void send(const Operation& sender, int from, int to, const Buffer& message);

  // Lines up this rank's next collective call with the other ranks'. Throws if they differ.
  Meeting meet(int rank, const std::string& call);
  void sleep_until_all_meet(Lock& lock, int rank, const Meeting& meeting);

  // Until everything that the operation sends and receives is delivered and its delay is over.
  void sleep_until_delivered(Lock& lock, int rank, const Operation& operation);

  const int size;
  const ThreadOptions options;
  std::vector<Member> members;  // by rank

 private:
  // A direction and a tag: what a message and a receive must agree on.
  using Address = std::tuple<int, int, uint32_t, uint32_t, uint8_t, uint8_t>;

  struct Posted {
    Operation operation;
    size_t index;
    size_t capacity;
  };
  struct Sent {
    Operation operation;
    Buffer message;
  };
  struct Channel {  // one of the two is always empty
    std::deque<Posted> posted;
    std::deque<Sent> sent;
  };

  static Address address(int from, int to, const Tag& tag) {
    return {from, to, tag.layout, tag.sequence, tag.phase, tag.chunk};
  }
  std::chrono::microseconds delay(const Address& where) const;
  void match(const Address& where);
  void deliver(const Address& where, const Posted& posted, const Sent& sent);
  std::string absent(uint64_t meeting) const;

  // Throws if the group dies before done(); kills it if the time is up.
  template <class Done, class Missing>
  void sleep_until(Lock& lock, int rank, const Done& done, const Missing& missing) {
    const auto deadline = std::chrono::steady_clock::now() + options.timeout;
    while (!done()) {
      check_alive();
      if (wakeups_[rank].wait_until(lock, deadline) == std::cv_status::timeout && !done())
        die_and_throw("rank " + std::to_string(rank) + " waited " +
                      std::to_string(options.timeout.count()) + " ms for " + missing());
    }
  }

  std::mutex mutex_;
  std::vector<std::condition_variable> wakeups_;  // by rank
  std::map<Address, Channel> channels_;
  std::map<uint64_t, Meeting> meetings_;  // those that somebody has not reached
  std::string death_;                     // empty while the group lives
};

}  // namespace zen
