// Memory for messages and their scratch, reused from one exchange to the next.
//
// A message buffer has room for the worst case (every element listed) although most messages are
// far smaller. That costs address space only: large blocks come straight from the kernel, and a
// page that nobody has touched is not resident. Reuse matters because the first touch of a page is
// slower than writing it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/buffer.h"

namespace zen {

// Thread-safe. Invariants:
// 1. A block is a block of exactly one Buffer family (a Buffer and its copies and slices) or idle.
// 2. Idle blocks never exceed the idle limit; the one returned longest ago goes first.
// 3. An idle block was used in one of the last kKeptRounds rounds; what a round is, the owner says.
// Buffers may outlive the pool: the last copy of the last Buffer frees what is left.
class BufferPool {
 public:
  static constexpr size_t kDefaultIdleLimit = size_t{1} << 30;

  // Enough for buckets that come in every other iteration (gradient accumulation, evaluation) to
  // find their memory again; few enough for the one large bucket of a first iteration to be gone
  // soon.
  static constexpr uint64_t kKeptRounds = 8;

  explicit BufferPool(size_t idle_limit = kDefaultIdleLimit);

  // Uninitialised memory of `bytes` bytes (0 is fine), aligned to 64. Wastes at most an eighth of
  // the address space above one page. Throws Error if the system has no more.
  Buffer get(size_t bytes);

  // The same as a function that outlives the pool.
  Allocate allocator() const;

  // A round (an iteration) ends: what the last kKeptRounds of them did not use goes back to the
  // system.
  void end_round();

  // Gives idle blocks back to the system until at most `idle_bytes` are left.
  void trim(size_t idle_bytes = 0);

  struct Usage {
    size_t in_use = 0;  // bytes of blocks that Buffers hold
    size_t idle = 0;    // bytes of blocks that wait for reuse
  };
  Usage usage() const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace zen
