#include "torch/lane.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "core/cpu_device.h"
#include "core/error.h"

namespace zen {

namespace {

class CpuLane final : public Lane {
 public:
  CpuLane(const LaneOptions& options, Mode mode)
      : group_(make_transport(options.group, mode)),
        node_(options.node ? make_transport(options.node, mode) : nullptr) {}

  ~CpuLane() override {
    group_.reset();
    node_.reset();
    device_.pool().trim();
  }

  Device& device() override { return device_; }
  Transport& transport() override { return *group_; }
  C10dTransport& group() override { return *group_; }
  C10dTransport* node() override { return node_.get(); }
  void end_iteration() override { device_.pool().end_round(); }

 private:
  std::unique_ptr<C10dTransport> make_transport(const ProcessGroup& group, Mode mode) {
    return C10dTransport::make(
        group, mode, {.allocate = [this](size_t bytes) { return device_.allocate(bytes); }});
  }

  CpuDevice device_;
  std::unique_ptr<C10dTransport> group_, node_;
};

}  // namespace

Arrival::Arrival(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return;
  const c10::impl::VirtualGuardImpl backend(tensor.device().type());
  const c10::Stream stream = backend.getStream(tensor.device());
  if (is_captured(stream))
    throw InvalidArgument(
        "zensync cannot be captured in a CUDA graph, because the sizes of its messages are found "
        "out on the way: capture the forward and backward pass with model.no_sync(), or train "
        "without graphs");
  event_.emplace(tensor.device().type());
  event_->record(stream);
}

void Arrival::hand_to(const std::optional<c10::Stream>& stream, const at::Tensor& tensor) const {
  if (!event_ || !stream) return;
  event_->block(*stream);
  c10::impl::VirtualGuardImpl(stream->device_type())
      .recordDataPtrOnStream(tensor.storage().data_ptr(), *stream);
}

Mode mode_on(c10::DeviceType type, const LaneOptions& options) {
  const Mode best = C10dTransport::best_mode(options.group, type);
  if (options.mode == Mode::capacity && best != Mode::capacity)
    throw InvalidArgument("transport 'capacity' works on gloo only: choose exact");
  return options.mode.value_or(best);
}

std::unique_ptr<Lane> make_lane(at::Device device, const LaneOptions& options) {
  if (device.is_cpu())
    return std::make_unique<CpuLane>(options, mode_on(c10::DeviceType::CPU, options));
  if (options.node)
    throw InvalidArgument("a topology works with CPU tensors only, and a tensor is on " +
                          device.str() + ": leave topology, intra_group and inter_group out");
  return make_cuda_lane(device, options);
}

}  // namespace zen
