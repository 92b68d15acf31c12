#include "torch/lanes.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace zen {

namespace {

bool moves(const ProcessGroup& group, c10::DeviceType type) {
  return C10dTransport::backend_name(group, type).has_value();
}

at::Device first_device(const ProcessGroup& group) {
  if (moves(group, c10::DeviceType::CPU)) return c10::DeviceType::CPU;
  if (built_for_cuda() && moves(group, c10::DeviceType::CUDA))
    return group->getBoundDeviceId().value_or(
        c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getDevice());
  throw InvalidArgument(
      "the process group does not move tensors of a kind that this build of zensync handles: use "
      "init_process_group('cpu:gloo,cuda:nccl'), or give it a gloo group, "
      "new_group(backend='gloo')");
}

}  // namespace

Lanes::Lanes(LaneOptions options) : options_(std::move(options)) {
  const at::Device device = first_device(options_.group);
  mode_ = mode_on(device.type(), options_);
  at(device);
}

Lane& Lanes::at(at::Device device) {
  for (const Kept& kept : lanes_)
    if (kept.device == device) return *kept.lane;
  auto lane = make_lane(device, options_);
  const std::lock_guard lock(mutex_);
  return *lanes_.emplace_back(device, std::move(lane)).lane;
}

uint32_t Lanes::broadcast(uint32_t value) {
  const auto inside = first().enter();
  if (size() > 1) value = first().group().broadcast(value);
  return first().node() != nullptr ? first().node()->broadcast(value) : value;
}

void Lanes::end_iteration() {
  for (const Kept& kept : lanes_) kept.lane->end_iteration();
}

Traits Lanes::traits() const {
  Traits traits = first().transport().traits();
  for (const Kept& kept : lanes_)
    traits.ordered = traits.ordered || kept.lane->transport().traits().ordered;
  const auto gpu = C10dTransport::backend_name(options_.group, c10::DeviceType::CUDA);
  if (built_for_cuda() && gpu && *gpu != "gloo") traits.max_chunks = 1;
  return traits;
}

void Lanes::agree(uint64_t fingerprint, const std::string& description) {
  const auto inside = first().enter();
  first().group().agree(fingerprint, description);
}

void Lanes::fail() noexcept {
  const std::lock_guard lock(mutex_);
  for (const Kept& kept : lanes_) {
    kept.lane->group().fail();
    if (kept.lane->node() != nullptr) kept.lane->node()->fail();
  }
}

Traffic Lanes::traffic() const {
  Traffic sum;
  for (const Kept& kept : lanes_) {
    const Traffic one = kept.lane->group().traffic();
    sum.bytes_out += one.bytes_out;
    sum.bytes_in += one.bytes_in;
  }
  return sum;
}

}  // namespace zen
