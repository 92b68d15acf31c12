// The memory of one step of a CudaDevice: tables that travel to the device and results that come
// back, each in one copy, whatever their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "cuda/portable.h"
#include "cuda/scan.h"

namespace zen::cuda {

// Returns when all is done that the stream holds, or throws.
using Wait = std::function<void()>;

// Device memory is given back when the Step ends: in stream order, so behind the step's own work.
class Step {
 public:
  // Host memory that queued copies read goes to `held`, whose owner frees it once it has waited.
  Step(cudaStream_t stream, const Allocate& device, const Allocate& pinned, const Wait& wait,
       std::vector<Buffer>& held)
      : stream_(stream), device_(device), pinned_(pinned), wait_(wait), held_(held) {}
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Device memory of the step.
  std::byte* scratch(size_t bytes);
  std::byte* cleared(size_t bytes);

  // A copy of `table` on the device.
  template <class T>
  const T* upload(std::span<const T> table) {
    return reinterpret_cast<const T*>(upload_bytes(std::as_bytes(table)));
  }

  // Scans lists that the host names.
  void scan(const std::vector<ScanList>& lists) {
    cuda::scan(upload(std::span<const ScanList>(lists)), static_cast<unsigned>(lists.size()),
               stream_);
  }

  // `count` words on the device, all 0, that read_results() copies to the host.
  uint64_t* make_results(size_t count);
  // Waits for the stream, the only wait of a step. The results stay as long as `held` has them.
  std::span<const uint64_t> read_results();
  // The same again. REQUIRES: read_results() before.
  std::span<const uint64_t> results() const { return found_; }

 private:
  const std::byte* upload_bytes(std::span<const std::byte> bytes);

  cudaStream_t stream_;
  const Allocate& device_;
  const Allocate& pinned_;
  const Wait& wait_;
  std::vector<Buffer>& held_;
  std::vector<Buffer> memory_;
  uint64_t* results_ = nullptr;
  std::span<const uint64_t> found_;
  size_t result_count_ = 0;
};

}  // namespace zen::cuda
