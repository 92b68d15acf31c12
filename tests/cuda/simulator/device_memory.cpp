#include "device_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "fault.h"

namespace zen::simulator {

namespace {

constexpr size_t kRegion = size_t{1} << 30;  // of addresses: memory is taken as it is used
constexpr size_t kStep = size_t{1} << 18;
constexpr size_t kAlign = 256;
constexpr int kRubbish = 0xcd;

// Where the regions begin, for the handler below.
std::array<std::atomic<uintptr_t>, 256> regions{};

struct sigaction before{};

// Says what a wild access into a closed region is, and leaves any other to who was there before.
void explain(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const auto& region : regions) {
    const uintptr_t begin = region.load();
    if (begin == 0 || address < begin || address >= begin + kRegion) continue;
    constexpr char kText[] = "simulator: the host touches the memory of a simulated GPU\n";
    static_cast<void>(!write(STDERR_FILENO, kText, sizeof kText - 1));
    _exit(134);
  }
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(signal, info, context);
  sigaction(signal, &before, nullptr);
}

void watch(uintptr_t begin) {
  static const bool installed = [] {
    struct sigaction action{};
    action.sa_sigaction = explain;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    return sigaction(SIGSEGV, &action, &before) == 0;
  }();
  if (!installed) throw Fault("no handler for accesses to device memory");
  for (auto& region : regions) {
    uintptr_t none = 0;
    if (region.compare_exchange_strong(none, begin)) return;
  }
  throw Fault("too many simulated machines at once");
}

}  // namespace

DeviceMemory::DeviceMemory() {
  void* region =
      mmap(nullptr, kRegion, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) throw Fault("no room for the memory of a simulated GPU");
  region_ = static_cast<std::byte*>(region);
  watch(reinterpret_cast<uintptr_t>(region_));
}

DeviceMemory::~DeviceMemory() {
  for (auto& region : regions) {
    auto begin = reinterpret_cast<uintptr_t>(region_);
    if (region.compare_exchange_strong(begin, 0)) break;
  }
  munmap(region_, kRegion);
}

void* DeviceMemory::allocate(size_t bytes) {
  // Always something behind a block that is nobody's.
  const size_t room = (bytes + kAlign) / kAlign * kAlign + kAlign;
  std::byte* memory = nullptr;
  const auto found = free_by_room_.find(room);
  if (found != free_by_room_.end() && !found->second.empty()) {
    memory = static_cast<std::byte*>(found->second.back());
    found->second.pop_back();
  } else {
    grow(room);
    memory = region_ + used_;
    used_ += room;
  }
  blocks_.emplace(memory, room);
  return memory;
}

void DeviceMemory::free(void* memory) {
  const auto found = blocks_.find(memory);
  if (found == blocks_.end()) throw Fault("memory is freed that is not the machine's");
  const size_t room = found->second;
  blocks_.erase(found);
  std::memset(memory, kRubbish, room);
  free_by_room_[room].push_back(memory);
}

void DeviceMemory::grow(size_t bytes) {
  if (used_ + bytes > kRegion) throw Fault("a simulated GPU is out of memory");
  while (prepared_ < used_ + bytes) {
    std::byte* fresh = region_ + prepared_;
    mprotect(fresh, kStep, PROT_READ | PROT_WRITE);
    std::memset(fresh, kRubbish, kStep);
    if (open_ == 0) mprotect(fresh, kStep, PROT_NONE);
    prepared_ += kStep;
  }
}

void DeviceMemory::protect(int protection) {
  if (prepared_ != 0) mprotect(region_, prepared_, protection);
}

DeviceMemory::Access::Access(DeviceMemory& memory) : memory_(memory) {
  if (memory_.open_++ == 0) memory_.protect(PROT_READ | PROT_WRITE);
}

DeviceMemory::Access::~Access() {
  if (--memory_.open_ == 0) memory_.protect(PROT_NONE);
}

}  // namespace zen::simulator
