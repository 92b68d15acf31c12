// A simulated GPU with a CudaDevice on a stream of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "cuda/cuda_device.h"
#include "cuda/memory.h"
#include "simulator/machine.h"

namespace zen::test {

class Gpu {
 public:
  explicit Gpu(uint64_t seed) : machine_(seed), stream_(machine_.make_stream()) {}

  // For the thread that calls it, which uses the machine (simulator::Use) as long as the device.
  cuda::CudaDevice device() {
    return cuda::CudaDevice(stream_, cuda::stream_memory(stream_), cuda::pinned_memory());
  }
  simulator::Machine& machine() { return machine_; }
  cudaStream_t stream() { return stream_; }
  void finish() {
    machine_.run_until([this] { return machine_.is_idle(); });
  }

  // The same bytes in the GPU's memory, and in the host's.
  Buffer upload(std::span<const std::byte> bytes) {
    const Buffer memory = cuda::stream_memory(stream_)(bytes.size());
    const simulator::DeviceMemory::Access access(machine_.memory());
    std::ranges::copy(bytes, memory.data);
    return memory;
  }
  // What the queued work leaves there.
  Buffer download(const Buffer& memory) {
    finish();
    auto bytes = std::make_shared<std::vector<std::byte>>(memory.bytes);
    const simulator::DeviceMemory::Access access(machine_.memory());
    std::copy_n(memory.data, memory.bytes, bytes->data());
    return {bytes->data(), bytes->size(), bytes};
  }

 private:
  simulator::Machine machine_;
  cudaStream_t stream_;
};

}  // namespace zen::test
