#include "machine.h"

#include <algorithm>
#include <utility>

#include "fault.h"

namespace zen::simulator {

namespace {

thread_local Machine* current = nullptr;

Dim3 coordinates(uint64_t number, Dim3 grid) {
  return Dim3(static_cast<unsigned>(number % grid.x),
              static_cast<unsigned>(number / grid.x % grid.y),
              static_cast<unsigned>(number / grid.x / grid.y));
}

}  // namespace

Machine& current_machine() {
  if (current == nullptr) throw Fault("this thread uses no simulated machine");
  return *current;
}

Use::Use(Machine& machine) : before_(std::exchange(current, &machine)) {}

Use::~Use() {
  current = before_;
}

void* Machine::allocate(size_t bytes) {
  ++counters.allocations;
  const std::lock_guard lock(mutex_);
  return memory_.allocate(bytes);
}

void Machine::free(void* memory) {
  const std::lock_guard lock(mutex_);
  memory_.free(memory);
}

Stream* Machine::make_stream() {
  const std::lock_guard lock(mutex_);
  streams_.push_back(std::make_unique<Stream>());
  streams_.back()->machine = this;
  return streams_.back().get();
}

void Machine::destroy(Stream* stream) {
  run_until([&] { return is_idle(stream); });
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [&](const auto& owned) { return owned.get() == stream; });
}

void Machine::add(Stream* stream, Work work) {
  const std::lock_guard lock(mutex_);
  stream->work.push_back(std::move(work));
}

bool Machine::is_idle(const Stream* stream) {
  const std::lock_guard lock(mutex_);
  return stream->work.empty();
}

bool Machine::is_idle() {
  const std::lock_guard lock(mutex_);
  return std::ranges::all_of(streams_, [](const auto& stream) { return stream->work.empty(); });
}

// A stream whose next work may run, or null.
Stream* Machine::pick() {
  const std::lock_guard lock(mutex_);
  std::vector<Stream*> ready;
  for (const auto& stream : streams_)
    if (!stream->work.empty() && (!stream->work.front().ready || stream->work.front().ready()))
      ready.push_back(stream.get());
  return ready.empty() ? nullptr : ready[random_.below(ready.size())];
}

void Machine::run_until(const std::function<bool()>& done) {
  const DeviceMemory::Access access(memory_);
  while (!done()) {
    Stream* stream = pick();
    if (stream == nullptr) throw Fault("every stream waits for an event that nobody will record");
    Work work;
    {
      const std::lock_guard lock(mutex_);
      work = std::move(stream->work.front());
      stream->work.pop_front();
    }
    work.run();
  }
}

void Machine::launch(Stream* stream, Dim3 grid, Dim3 block, size_t shared_bytes,
                     std::function<void()> body) {
  ++counters.launches;
  add(stream,
      {nullptr, [=, this, body = std::move(body)] { run_grid(grid, block, shared_bytes, body); }});
}

void Machine::run_grid(Dim3 grid, Dim3 block, size_t shared_bytes,
                       const std::function<void()>& body) {
  std::vector<uint64_t> order(uint64_t{grid.x} * grid.y * grid.z);
  for (uint64_t number = 0; number < order.size(); ++number) order[number] = number;
  for (uint64_t rest = order.size(); rest > 1; --rest)
    std::swap(order[rest - 1], order[random_.below(rest)]);
  for (uint64_t turn = 0; turn < order.size(); ++turn)
    runners_[turn % kRunners].run(coordinates(order[turn], grid), block, grid, shared_bytes,
                                  random_.next(), body);
  for (BlockRunner& runner : runners_) runner.join();
}

}  // namespace zen::simulator
