#include "block.h"

#include <bit>
#include <cstring>

#include "fault.h"

namespace zen::simulator {

namespace {

thread_local BlockRunner* current = nullptr;

constexpr int kPoison = 0xcd;  // shared memory is never zero by luck
constexpr uint64_t kAtomicsPerYield = 4;

std::unique_ptr<std::byte[]> poisoned(size_t bytes) {
  std::unique_ptr<std::byte[]> memory(new std::byte[bytes]);
  std::memset(memory.get(), kPoison, bytes);
  return memory;
}

std::string name_of(const Site& site) {
  const std::string path = site.file_name();
  return path.substr(path.rfind('/') + 1) + ":" + std::to_string(site.line());
}

bool same_place(const Site& a, const Site& b) {
  return a.line() == b.line() && a.column() == b.column();
}

}  // namespace

BlockRunner* current_block() {
  return current;
}

void BlockRunner::run(Dim3 at, Dim3 block_size, Dim3 grid_size, size_t dynamic_bytes, uint64_t seed,
                      const std::function<void()>& body) {
  if (block_size.volume() == 0 || block_size.volume() > kMaxThreads)
    throw Fault("a block has 1 to 1024 threads, not " + std::to_string(block_size.volume()));
  block_index = at;
  block = block_size;
  grid = grid_size;
  body_ = &body;
  begin(dynamic_bytes, seed);
  current = this;
  const struct Leave {
    ~Leave() { current = nullptr; }
  } leave;
  while (finished_ < count_) {
    if (runnables_ == 0) {
      for (unsigned number = 0; number < count_; ++number)
        if (threads_[number].state != Thread::State::finished)
          fail("deadlock: nobody else reaches where it waits", threads_[number]);
    }
    step_on();
  }
}

void BlockRunner::begin(size_t dynamic_bytes, uint64_t seed) {
  join();
  random_ = Random(seed);
  order_ = random_.below(2) == 0   ? Order::any
           : random_.below(2) == 0 ? Order::newest
                                   : Order::oldest;
  count_ = block.volume();
  while (threads_.size() < count_) threads_.emplace_back();
  finished_ = at_barrier_ = runnables_ = 0;
  shared_.clear();
  dynamic_ = poisoned(dynamic_bytes);
  host_.adopt_running_identity();
  for (unsigned number = 0; number < count_; ++number) {
    Thread& thread = threads_[number];
    if (!thread.fiber.prepared() || thread.state != Thread::State::finished)
      thread.fiber.prepare(entry);  // new, or abandoned by a block that failed
    thread.fiber.renew_identity();
    thread.number = number;
    thread.index = Dim3(number % block.x, number / block.x % block.y, number / (block.x * block.y));
    make_runnable(thread);
  }
}

void BlockRunner::make_runnable(Thread& thread) {
  thread.state = Thread::State::runnable;
  runnable_[runnables_++] = thread.number;
}

// Takes a runnable thread out of the list.
size_t BlockRunner::pick() {
  size_t at = runnables_ - 1;
  if (order_ == Order::any) at = random_.below(runnables_);
  if (order_ == Order::oldest) at = 0;
  const unsigned number = runnable_[at];
  --runnables_;
  if (order_ == Order::oldest)
    for (size_t next = at; next < runnables_; ++next) runnable_[next] = runnable_[next + 1];
  else
    runnable_[at] = runnable_[runnables_];
  return number;
}

void BlockRunner::step_on() {
  Thread& thread = threads_[pick()];
  running_ = &thread;
  Fiber::switch_to(host_, thread.fiber);
  switch (thread.state) {
    case Thread::State::runnable:
      make_runnable(thread);
      break;
    case Thread::State::at_barrier:
      after_barrier_arrival(thread);
      break;
    case Thread::State::in_warp:
      after_warp_arrival(thread);
      break;
    case Thread::State::finished:
      ++finished_;
      if (at_barrier_ > 0)
        fail("divergent barrier: a thread returns while others wait at __syncthreads()", thread);
      break;
  }
}

void BlockRunner::entry() {
  BlockRunner& self = *current;
  Fiber::arrived(self.running_->fiber, self.host_);
  self.thread_loop();
}

// A finished thread's fiber serves the next block.
void BlockRunner::thread_loop() {
  Thread& thread = *running_;
  for (;;) {
    (*body_)();
    release(&barrier_object_);
    wait(Thread::State::finished, thread.site);
  }
}

void BlockRunner::wait(Thread::State state, const Site& site) {
  Thread& thread = *running_;
  thread.state = state;
  thread.site = site;
  Fiber::switch_to(thread.fiber, host_);
}

void BlockRunner::barrier(const Site& site) {
  release(&barrier_object_);
  wait(Thread::State::at_barrier, site);
  acquire(&barrier_object_);
}

void BlockRunner::after_barrier_arrival(const Thread& arrived) {
  if (finished_ > 0)
    fail("divergent barrier: __syncthreads() after a thread of the block has returned", arrived);
  for (unsigned number = 0; at_barrier_ > 0 && number < count_; ++number) {
    const Thread& other = threads_[number];
    if (&other == &arrived || other.state != Thread::State::at_barrier) continue;
    if (!same_place(other.site, arrived.site))
      fail("divergent barrier: another thread waits at " + name_of(other.site), arrived);
    break;
  }
  if (++at_barrier_ < count_) return;
  at_barrier_ = 0;
  for (unsigned number = 0; number < count_; ++number) make_runnable(threads_[number]);
}

uint64_t BlockRunner::warp_step(WarpStep step, uint32_t mask, uint64_t value, unsigned source,
                                const Site& site) {
  Thread& thread = *running_;
  const unsigned warp = thread.number / kWarpLanes;
  thread.step = step;
  thread.mask = mask;
  thread.value = value;
  thread.source = source;
  release(&warp_objects_[warp]);
  wait(Thread::State::in_warp, site);
  acquire(&warp_objects_[warp]);
  return thread.result;
}

void BlockRunner::after_warp_arrival(const Thread& arrived) {
  const unsigned first = arrived.number / kWarpLanes * kWarpLanes;
  if ((arrived.mask >> (arrived.number - first) & 1) == 0)
    fail("a lane is not in the mask that it names", arrived);
  for (uint32_t rest = arrived.mask; rest != 0; rest &= rest - 1) {
    const unsigned number = first + static_cast<unsigned>(std::countr_zero(rest));
    if (number >= count_) fail("the mask names a lane that the block does not have", arrived);
    const Thread& other = threads_[number];
    if (other.state == Thread::State::finished)
      fail("the mask names a lane that has returned", arrived);
    if (other.state != Thread::State::in_warp) return;
    if (other.mask != arrived.mask || other.step != arrived.step)
      fail("lanes disagree: another one of the mask waits at " + name_of(other.site), arrived);
  }
  complete_warp(first, arrived.mask, arrived.step);
}

void BlockRunner::complete_warp(unsigned first, uint32_t mask, WarpStep step) {
  uint64_t ballot = 0;
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(rest));
    ballot |= uint64_t{threads_[first + lane].value != 0} << lane;
  }
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    Thread& thread = threads_[first + static_cast<unsigned>(std::countr_zero(rest))];
    if (step == WarpStep::shuffle && (mask >> thread.source & 1) == 0)
      fail("a shuffle reads a lane that is not in the mask", thread);
    thread.result = step == WarpStep::shuffle ? threads_[first + thread.source].value : ballot;
    make_runnable(thread);
  }
}

// Other threads may come between two atomic operations.
void BlockRunner::perhaps_yield() {
  if (random_.below(kAtomicsPerYield) == 0) wait(Thread::State::runnable, running_->site);
}

// The same memory for the same place in the text, on the heap so that AddressSanitizer knows its
// end. It is there before any thread uses it, which ThreadSanitizer has to be told.
void* BlockRunner::shared(const char* file, unsigned line, size_t bytes) {
  for (const Shared& shared : shared_) {
    if (shared.line != line || std::strcmp(shared.file, file) != 0) continue;
    acquire(shared.memory.get());
    return shared.memory.get();
  }
  shared_.push_back({file, line, poisoned(bytes)});
  release(shared_.back().memory.get());
  return shared_.back().memory.get();
}

void BlockRunner::fail(const std::string& what, const Thread& thread) const {
  throw Fault(what + " (block " + std::to_string(block_index.x) + ", thread " +
              std::to_string(thread.number) + ", at " + name_of(thread.site) + ")");
}

}  // namespace zen::simulator
