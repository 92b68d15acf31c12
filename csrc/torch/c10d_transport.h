// Transport over c10d::ProcessGroup, whatever the backend: no backend class is named.
//
// The base does what all backends do alike; how messages travel is a mode:
//   capacity  point-to-point with every receive posted before any send, at the capacity of the
//             longest possible message. Full duplex and no size exchange, on gloo only.
//   exact     every send() is two collectives, an all-to-all of sizes and an all-to-all-v. Any
//             backend, and any device that it moves: the only mode over NCCL.
//
// A Work whose receive may still be answered must outlive its wait: gloo would wedge the pair of a
// dropped receive, or write into freed memory. So works and buffers of a ticket are dropped only
// after wait() succeeded; after an error they stay until the transport dies.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "schemes/transport.h"

namespace zen {

using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroup>;
using GroupWork = c10::intrusive_ptr<c10d::Work>;

enum class Mode { capacity, exact };

const char* name_of(Mode mode);

// Where a transport's messages are, and the tensors of its collectives.
struct Memory {
  Allocate allocate;
  at::Device device = c10::DeviceType::CPU;
  // Returns when all is done that the current stream holds; throws TransportError if that takes
  // longer than peers may. Null for the CPU, whose operations are done when they return.
  std::function<void()> settle = {};
};

class C10dTransport : public Transport {
 public:
  // Received messages and all other tensors are in `memory`.
  static std::unique_ptr<C10dTransport> make(ProcessGroup group, Mode mode, Memory memory);

  // Of the backend that moves tensors of this type; none if the group cannot.
  static std::optional<std::string> backend_name(const ProcessGroup& group, c10::DeviceType type);
  // The mode that is fastest for such tensors. Throws InvalidArgument if the group cannot move
  // them.
  static Mode best_mode(const ProcessGroup& group, c10::DeviceType type);

  int rank() const override { return group_->getRank(); }
  int size() const override { return group_->getSize(); }
  void all_reduce(const Buffer& data, DType dtype, Reduce reduce) override;
  void agree(uint64_t fingerprint, const std::string& description) override;
  void fail() noexcept override;
  Traffic traffic() const override { return traffic_; }

  // Of any dtype that the backend can add. A mean is the sum divided by the ranks.
  void all_reduce(at::Tensor tensor, Reduce reduce);

  // Collective. Returns rank 0's value.
  uint32_t broadcast(uint32_t value);

 protected:
  C10dTransport(ProcessGroup group, Memory memory)
      : group_(std::move(group)), memory_(std::move(memory)) {}

  c10d::ProcessGroup& group() const { return *group_; }
  Buffer allocate(size_t bytes) const { return memory_.allocate(bytes); }
  // The bytes as a tensor that keeps their owner alive.
  at::Tensor tensor_of(const Buffer& buffer) const;
  // A tensor on the CPU where the backend can move it, and what came back, without waiting for
  // ever.
  at::Tensor to_memory(const at::Tensor& tensor) const;
  at::Tensor to_host(const at::Tensor& tensor) const;

  // Calls `operation`; a backend's exception becomes a TransportError that starts with `what`.
  template <class Operation>
  static auto guarded(const std::string& what, Operation&& operation);

  Traffic traffic_;

 private:
  void fail_on_gloo();

  ProcessGroup group_;
  Memory memory_;
  std::atomic<bool> failed_{false};
  std::vector<GroupWork> unanswered_;  // receives of fail(): see the top of the file
};

[[noreturn]] void rethrow_as_transport_error(const std::string& what);

template <class Operation>
auto C10dTransport::guarded(const std::string& what, Operation&& operation) {
  try {
    return operation();
  } catch (...) {
    rethrow_as_transport_error(what);
  }
}

std::unique_ptr<C10dTransport> make_capacity_transport(ProcessGroup group, Memory memory);
std::unique_ptr<C10dTransport> make_exact_transport(ProcessGroup group, Memory memory);

}  // namespace zen
