// Stands in for csrc/torch/cuda in builds for CPU tensors.
#include "core/error.h"
#include "torch/lane.h"

namespace zen {

bool built_for_cuda() {
  return false;
}

std::unique_ptr<Lane> make_cuda_lane(at::Device device, const LaneOptions&) {
  throw InvalidArgument("zensync was built for CPU tensors only, and a tensor is on " +
                        device.str() + ": build it again with ZENSYNC_BUILD_CUDA=1");
}

bool is_captured(const c10::Stream&) {
  return false;
}

}  // namespace zen
