// Where tensors live and what works on them there: the processor's memory, or that of one GPU with
// a stream of zensync's own. The engine's thread has a lane for each device whose tensors it meets.
//
// The engine names no kind of device. What only a build for GPUs has is in csrc/torch/cuda, behind
// the three functions at the end.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <chrono>
#include <memory>
#include <optional>

#include "core/device.h"
#include "torch/c10d_transport.h"

namespace zen {

// What the submitting thread's stream held when a tensor was submitted. Nothing for the CPU.
class Arrival {
 public:
  // Throws InvalidArgument while the stream is being captured into a CUDA graph.
  explicit Arrival(const at::Tensor& tensor);

  // The stream goes on only behind what the submitting stream held, and the tensor's memory is not
  // given to another user before the stream is done with it.
  void hand_to(const std::optional<c10::Stream>& stream, const at::Tensor& tensor) const;

 private:
  std::optional<c10::Event> event_;
};

class Lane {
 public:
  virtual ~Lane() = default;

  virtual Device& device() = 0;
  virtual Transport& transport() = 0;  // of messages in the device's memory
  virtual C10dTransport& group() = 0;  // of tensors: what the backend itself does
  virtual C10dTransport* node() {
    return nullptr;
  }  // to the ranks of this node, if they add up first
  virtual std::optional<c10::Stream> stream() const { return std::nullopt; }

  // Memory that has not been needed for some iterations may be given back.
  virtual void end_iteration() {}

  // The calling thread works on the lane's device and stream as long as the guard lives.
  c10::OptionalStreamGuard enter() const { return c10::OptionalStreamGuard(stream()); }
};

struct LaneOptions {
  ProcessGroup group;
  std::optional<Mode> mode;           // none: the fastest
  std::chrono::milliseconds timeout;  // of waiting for peers on a GPU's stream
  ProcessGroup node;                  // null: every rank is a node of its own
};

// Throws InvalidArgument if the group's backend cannot move tensors of the device, or not in this
// mode.
std::unique_ptr<Lane> make_lane(at::Device device, const LaneOptions& options);

// How messages travel between ranks on a device of this type. Throws as make_lane() does.
Mode mode_on(c10::DeviceType type, const LaneOptions& options);

// Build-dependent: csrc/torch/cuda, or its stand-in for builds for CPU tensors.
bool built_for_cuda();
std::unique_ptr<Lane> make_cuda_lane(at::Device device, const LaneOptions& options);
bool is_captured(const c10::Stream& stream);

}  // namespace zen
