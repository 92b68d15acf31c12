// Ranks as threads of one process: the transport of the tests, and of whoever wants to try a scheme
// without a network.
//
// It is as strict as the strictest real backend, so that a scheme which runs here runs there:
// 1. A message longer than the posted capacity kills the group (gloo aborts the process).
// 2. Messages meet receives by (sender, receiver, tag), first in, first out; a tag that nobody
//    expects is never delivered.
// 3. send() does not wait, but wait() returns only when the peers have posted receives for what
// this
//    rank sent, as gloo's rendezvous does.
// 4. Without exact sizes a received buffer has the posted capacity and garbage behind the message.
// 5. With ordered traits every call but wait() is a collective: each rank's sequence of calls is
//    compared with the others', send() waits for all ranks, and a message that is sent but not
//    expected (or the reverse) kills the group.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "schemes/transport.h"

namespace zen {

constexpr Traits kGlooTraits{.ordered = false, .exact_sizes = false, .max_chunks = 4};
constexpr Traits kNcclTraits{.ordered = true, .exact_sizes = true, .max_chunks = 1};

struct ThreadOptions {
  Traits traits = kGlooTraits;
  std::chrono::milliseconds timeout{60'000};
  std::chrono::microseconds max_delay{0};  // a message arrives after a random part of this
  uint64_t seed = 0;                       // of the delays
};

class ThreadGroup {
 public:
  // Throws InvalidArgument if size < 1.
  explicit ThreadGroup(int size, const ThreadOptions& options = {});
  ~ThreadGroup();

  int size() const;

  // One per rank; lives as long as the group. REQUIRES: 0 <= rank < size().
  Transport& transport(int rank);

  // The rank's call number `call`, counted from 0 over all its methods that may throw, throws
  // TransportError. As with any local failure, it is the caller who then says fail().
  // REQUIRES: no call is in progress.
  void inject_fault(int rank, uint64_t call);

  // Calls that the rank has made so far. REQUIRES: no call is in progress.
  uint64_t calls(int rank) const;

 private:
  class State;
  class Endpoint;

  std::unique_ptr<State> state_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace zen
