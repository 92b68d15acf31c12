#include "core/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "core/error.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ZEN_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ZEN_ASAN 1
#endif
#ifdef ZEN_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace zen {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kPage = 4096;
// Below this the C++ heap is faster than a system call; from here on untouched pages must not cost.
constexpr size_t kMapFrom = size_t{64} << 10;

// Block sizes are multiples of an eighth of a power of two: few enough for blocks to be reused,
// and at most an eighth wasted.
size_t block_size(size_t bytes) {
  bytes = std::max(bytes, size_t{1});
  const size_t step = std::max(std::bit_floor(bytes) / 8, bytes < kMapFrom ? kAlignment : kPage);
  return (bytes + step - 1) / step * step;
}

std::byte* map_block(size_t size) {
  if (size < kMapFrom)
    return static_cast<std::byte*>(::operator new(size, std::align_val_t{kAlignment}));
  void* block = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED)
    throw Error("the system refused " + std::to_string(size) +
                " bytes of memory for a message: use smaller buckets");
  return static_cast<std::byte*>(block);
}

void unmap_block(std::byte* block, size_t size) noexcept {
  if (size < kMapFrom)
    ::operator delete(block, std::align_val_t{kAlignment});
  else
    ::munmap(block, size);
}

// Under AddressSanitizer only the bytes that a Buffer asked for may be touched.
void expose([[maybe_unused]] std::byte* block, [[maybe_unused]] size_t size,
            [[maybe_unused]] size_t visible) {
#ifdef ZEN_ASAN
  ASAN_UNPOISON_MEMORY_REGION(block, size);
  ASAN_POISON_MEMORY_REGION(block + visible, size - visible);
#endif
}

}  // namespace

class BufferPool::State : public std::enable_shared_from_this<BufferPool::State> {
 public:
  explicit State(size_t idle_limit) : idle_limit_(idle_limit) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { trim(0); }

  Buffer get(size_t bytes) {
    const size_t size = block_size(bytes);
    std::byte* block = reuse(size);
    if (block == nullptr) block = map_block(size);
    expose(block, size, bytes);
    {
      const std::lock_guard lock(mutex_);
      usage_.in_use += size;
    }
    auto give_back = [state = shared_from_this(), size](void* memory) noexcept {
      state->put(static_cast<std::byte*>(memory), size);
    };
    return {block, bytes, std::shared_ptr<void>(block, std::move(give_back))};
  }

  void trim(size_t idle_bytes) noexcept {
    const std::lock_guard lock(mutex_);
    trim_locked(idle_bytes);
  }

  // Blocks that are used again and again stay at the back of their list, so those in front age.
  void end_round() noexcept {
    const std::lock_guard lock(mutex_);
    ++round_;
    for (auto& [size, blocks] : idle_) {
      const auto is_old = [this](const Idle& idle) { return idle.round + kKeptRounds < round_; };
      auto kept = blocks.begin();
      for (; kept != blocks.end() && is_old(*kept); ++kept) {
        release(kept->block, size);
        usage_.idle -= size;
      }
      blocks.erase(blocks.begin(), kept);
    }
  }

  Usage usage() const {
    const std::lock_guard lock(mutex_);
    return usage_;
  }

 private:
  struct Idle {
    std::byte* block;
    uint64_t returned;  // order of return, for eviction
    uint64_t round;     // of the return
  };

  std::byte* reuse(size_t size) {
    const std::lock_guard lock(mutex_);
    const auto found = idle_.find(size);
    if (found == idle_.end() || found->second.empty()) return nullptr;
    // The block returned last is the likeliest to be in the cache.
    std::byte* block = found->second.back().block;
    found->second.pop_back();
    usage_.idle -= size;
    return block;
  }

  void put(std::byte* block, size_t size) noexcept {
    expose(block, size, 0);
    const std::lock_guard lock(mutex_);
    usage_.in_use -= size;
    try {
      idle_[size].push_back({block, ++returns_, round_});
      usage_.idle += size;
    } catch (const std::bad_alloc&) {
      release(block, size);
    }
    trim_locked(idle_limit_);
  }

  void trim_locked(size_t idle_bytes) noexcept {
    while (usage_.idle > idle_bytes) {
      auto oldest = idle_.end();
      for (auto kind = idle_.begin(); kind != idle_.end(); ++kind) {
        if (kind->second.empty()) continue;
        if (oldest == idle_.end() ||
            kind->second.front().returned < oldest->second.front().returned)
          oldest = kind;
      }
      auto& [size, blocks] = *oldest;
      release(blocks.front().block, size);
      blocks.erase(blocks.begin());
      usage_.idle -= size;
    }
  }

  static void release(std::byte* block, size_t size) noexcept {
    expose(block, size, size);
    unmap_block(block, size);
  }

  mutable std::mutex mutex_;
  std::map<size_t, std::vector<Idle>> idle_;  // by block size; each list in order of return
  Usage usage_;
  uint64_t returns_ = 0, round_ = 0;
  const size_t idle_limit_;
};

BufferPool::BufferPool(size_t idle_limit) : state_(std::make_shared<State>(idle_limit)) {}

Buffer BufferPool::get(size_t bytes) {
  return state_->get(bytes);
}

Allocate BufferPool::allocator() const {
  return [state = state_](size_t bytes) { return state->get(bytes); };
}

void BufferPool::end_round() {
  state_->end_round();
}

void BufferPool::trim(size_t idle_bytes) {
  state_->trim(idle_bytes);
}

BufferPool::Usage BufferPool::usage() const {
  return state_->usage();
}

}  // namespace zen
