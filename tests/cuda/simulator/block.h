// One block of CUDA threads, run as fibers in an order that follows from a seed.
//
// A thread runs until it must wait: at a barrier of its block, for the other lanes of its warp, or
// (by chance) before an atomic operation. Which of the others goes on is drawn. The rules are
// stricter than a GPU's, so that what passes here does not hang there:
// 1. every thread of a block reaches the same __syncthreads(), none having returned before;
// 2. the lanes named in a mask are there, name the same mask and call the same operation.
// A broken rule is a Fault, thrown to whoever waits for the stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "fiber.h"
#include "random.h"

namespace zen::simulator {

using Site = std::source_location;

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr Dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr unsigned volume() const { return x * y * z; }
};

constexpr unsigned kWarpLanes = 32;
constexpr unsigned kMaxThreads = 1024;

enum class WarpStep : uint8_t { sync, ballot, shuffle };

struct Thread {
  enum class State : uint8_t { runnable, at_barrier, in_warp, finished };

  Fiber fiber;
  Dim3 index;
  unsigned number = 0;  // in the block
  State state = State::finished;
  Site site;                       // where it waits
  WarpStep step = WarpStep::sync;  // what it asks of its warp:
  uint32_t mask = 0;
  uint64_t value = 0;
  unsigned source = 0;  // the lane whose value a shuffle returns
  uint64_t result = 0;
};

class BlockRunner {
 public:
  BlockRunner() = default;

  // Runs `body` once for each thread. Throws Fault. What the threads did is not yet known to have
  // happened (for ThreadSanitizer) until join() or the next run().
  void run(Dim3 block_index, Dim3 block, Dim3 grid, size_t dynamic_bytes, uint64_t seed,
           const std::function<void()>& body);
  void join() { acquire(&barrier_object_); }

  // For code of the running thread.
  Thread& thread() { return *running_; }
  Dim3 block_index, block, grid;
  void barrier(const Site& site);
  uint64_t warp_step(WarpStep step, uint32_t mask, uint64_t value, unsigned source,
                     const Site& site);
  void perhaps_yield();
  void* shared(const char* file, unsigned line, size_t bytes);
  void* dynamic_shared() { return dynamic_.get(); }

 private:
  struct Shared {
    const char* file;
    unsigned line;
    std::unique_ptr<std::byte[]> memory;
  };

  static void entry();
  void begin(size_t dynamic_bytes, uint64_t seed);
  void thread_loop();
  void wait(Thread::State state, const Site& site);
  void step_on();
  void make_runnable(Thread& thread);
  size_t pick();
  void after_barrier_arrival(const Thread& arrived);
  void after_warp_arrival(const Thread& arrived);
  void complete_warp(unsigned first, uint32_t mask, WarpStep step);
  [[noreturn]] void fail(const std::string& what, const Thread& thread) const;

  std::deque<Thread> threads_;  // as many as the largest block had
  unsigned count_ = 0, finished_ = 0, at_barrier_ = 0;
  unsigned runnable_[kMaxThreads];  // a stack of numbers
  unsigned runnables_ = 0;
  Fiber host_;
  Thread* running_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  std::vector<Shared> shared_;
  std::unique_ptr<std::byte[]> dynamic_;
  Random random_{0};
  enum class Order : uint8_t { any, newest, oldest } order_ = Order::any;
  char barrier_object_ = 0, warp_objects_[kMaxThreads / kWarpLanes] = {};
};

// The block that this operating system thread runs, or null.
BlockRunner* current_block();

}  // namespace zen::simulator
