#include "cuda/step.h"

#include "cuda/error.h"

namespace zen::cuda {

std::byte* Step::scratch(size_t bytes) {
  memory_.push_back(device_(bytes));
  return memory_.back().data;
}

std::byte* Step::cleared(size_t bytes) {
  std::byte* memory = scratch(bytes);
  check(cudaMemsetAsync(memory, 0, bytes, stream_), "cudaMemsetAsync");
  return memory;
}

const std::byte* Step::upload_bytes(std::span<const std::byte> bytes) {
  held_.push_back(pinned_(bytes.size()));
  std::memcpy(held_.back().data, bytes.data(), bytes.size());
  std::byte* copy = scratch(bytes.size());
  check(cudaMemcpyAsync(copy, held_.back().data, bytes.size(), cudaMemcpyHostToDevice, stream_),
        "copying a table to the device");
  return copy;
}

uint64_t* Step::make_results(size_t count) {
  result_count_ = count;
  results_ = reinterpret_cast<uint64_t*>(cleared(count * sizeof(uint64_t)));
  return results_;
}

std::span<const uint64_t> Step::read_results() {
  const size_t bytes = result_count_ * sizeof(uint64_t);
  held_.push_back(pinned_(bytes));
  check(cudaMemcpyAsync(held_.back().data, results_, bytes, cudaMemcpyDeviceToHost, stream_),
        "copying results to the host");
  wait_();
  found_ = {reinterpret_cast<const uint64_t*>(held_.back().data), result_count_};
  return found_;
}

}  // namespace zen::cuda
