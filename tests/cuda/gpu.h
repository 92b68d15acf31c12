// A simulated GPU with a CudaDevice on a stream of its own.
#pragma once

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

 private:
  simulator::Machine machine_;
  cudaStream_t stream_;
};

}  // namespace zen::test
