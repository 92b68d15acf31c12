// The simulated GPU: streams are queues of work that nobody touches until somebody waits.
//
// Work runs as late as CUDA allows and, among streams, in an order drawn from a seed. So a missing
// wait between two streams, a table that the host frees too early or a result that it reads too
// early shows as a wrong result, and the seed brings it back.
//
// Each Machine is used by one thread, the one that waits; others may only add work to its streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "block.h"
#include "device_memory.h"
#include "random.h"

namespace zen::simulator {

class Machine;

// The state of an event: how often it was recorded, and how many of these records have been passed.
struct Event {
  uint64_t recorded = 0, passed = 0;
};

struct Work {
  std::function<bool()> ready;  // null: always
  std::function<void()> run;
};

struct Stream {
  Machine* machine = nullptr;
  std::deque<Work> work;
};

struct Counters {
  uint64_t launches = 0, copies = 0, synchronisations = 0, allocations = 0;
};

class Machine {
 public:
  explicit Machine(uint64_t seed = 0) : random_(seed) {}
  // What is still queued is dropped.
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  Stream* make_stream();
  void destroy(Stream* stream);  // runs what the stream holds first
  void add(Stream* stream, Work work);

  // Runs work until done() holds. Throws Fault if a kernel broke a rule or nothing can go on.
  void run_until(const std::function<bool()>& done);
  bool is_idle(const Stream* stream);
  bool is_idle();

  void launch(Stream* stream, Dim3 grid, Dim3 block, size_t shared_bytes,
              std::function<void()> body);

  void* allocate(size_t bytes);
  void free(void* memory);  // of work: see DeviceMemory
  DeviceMemory& memory() { return memory_; }

  Counters counters;

 private:
  void run_grid(Dim3 grid, Dim3 block, size_t shared_bytes, const std::function<void()>& body);
  Stream* pick();

#ifdef ZEN_SIMULATOR_TSAN
  // Blocks that ThreadSanitizer takes for concurrent; each costs a fiber for every thread.
  static constexpr size_t kRunners = 4;
#else
  static constexpr size_t kRunners = 1;
#endif

  Random random_;
  DeviceMemory memory_;
  std::mutex mutex_;  // guards the queues and the memory
  std::vector<std::unique_ptr<Stream>> streams_;
  BlockRunner runners_[kRunners];
};

// The machine that CUDA calls of this operating system thread mean.
Machine& current_machine();

// Makes `machine` current for a scope.
class Use {
 public:
  explicit Use(Machine& machine);
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  Machine* before_;
};

}  // namespace zen::simulator
