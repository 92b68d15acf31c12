// One stream with a CudaDevice, on a GPU or on the simulator of tests/cuda.
#pragma once

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "cuda/cuda_device.h"
#include "cuda/error.h"
#include "cuda/memory.h"

namespace zen::bench {

// Hands out again what came back: what PyTorch's caching allocators are to the extension.
class Cache {
 public:
  explicit Cache(Allocate allocate) : kept_(std::make_shared<Kept>()) {
    kept_->allocate = std::move(allocate);
  }

  Allocate allocator() const {
    return [kept = kept_](size_t bytes) -> Buffer {
      const size_t room = (bytes + kGrain) / kGrain * kGrain;
      std::vector<Buffer>& free = kept->free[room];
      if (free.empty()) free.push_back(kept->allocate(room));
      const Buffer memory = free.back();
      free.pop_back();
      return {memory.data, bytes, std::shared_ptr<void>(memory.data, [kept, memory, room](void*) {
                kept->free[room].push_back(memory);
              })};
    };
  }

 private:
  static constexpr size_t kGrain = 4096;
  struct Kept {
    Allocate allocate;
    std::map<size_t, std::vector<Buffer>> free;  // by room
  };

  std::shared_ptr<Kept> kept_;
};

class Gpu {
 public:
  Gpu()
      : stream_(make_stream()),
        device_memory_(cuda::stream_memory(stream_)),
        pinned_memory_(cuda::pinned_memory()),
        device_(stream_, device_memory_.allocator(), pinned_memory_.allocator()) {}

  static std::string name() {
#ifdef ZEN_CUDA_SIMULATOR
    return "simulator";
#else
    cudaDeviceProp properties;
    cuda::check(cudaGetDeviceProperties(&properties, 0), "asking for the GPU's name");
    return properties.name;
#endif
  }

  cuda::CudaDevice& device() { return device_; }
  Buffer allocate(size_t bytes) { return device_.allocate(bytes); }
  void settle() { cuda::check(cudaStreamSynchronize(stream_), "waiting for the stream"); }

  void copy(const Buffer& from, const Buffer& to, cudaMemcpyKind kind) {
    cuda::check(cudaMemcpyAsync(to.data, from.data, from.bytes, kind, stream_), "copying");
  }
  Buffer upload(std::span<const std::byte> bytes) {
    const Buffer pinned = pinned_memory_.allocator()(bytes.size());
    if (!bytes.empty()) std::memcpy(pinned.data, bytes.data(), bytes.size());
    const Buffer memory = allocate(bytes.size());
    copy(pinned, memory, cudaMemcpyHostToDevice);
    settle();
    return memory;
  }
  Buffer download(const Buffer& memory) {
    const Buffer pinned = pinned_memory_.allocator()(memory.bytes);
    copy(memory, pinned, cudaMemcpyDeviceToHost);
    settle();
    return pinned;
  }

 private:
  static cudaStream_t make_stream() {
    cudaStream_t stream = nullptr;
    cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    return stream;
  }

  cudaStream_t stream_;
  Cache device_memory_, pinned_memory_;
  cuda::CudaDevice device_;
};

}  // namespace zen::bench
