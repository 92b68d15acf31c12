#include "cuda/memory.h"

#include "cuda/error.h"

namespace zen::cuda {

Allocate stream_memory(cudaStream_t stream) {
  return [stream](size_t bytes) -> Buffer {
    void* memory = nullptr;
    check(cudaMallocAsync(&memory, bytes, stream), "cudaMallocAsync");
    return {static_cast<std::byte*>(memory), bytes,
            std::shared_ptr<void>(memory, [stream](void* at) { cudaFreeAsync(at, stream); })};
  };
}

Allocate pinned_memory() {
  return [](size_t bytes) -> Buffer {
    void* memory = nullptr;
    check(cudaMallocHost(&memory, bytes), "cudaMallocHost");
    return {static_cast<std::byte*>(memory), bytes,
            std::shared_ptr<void>(memory, [](void* at) { cudaFreeHost(at); })};
  };
}

}  // namespace zen::cuda
