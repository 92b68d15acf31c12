// DGC in the engine: gives every bucket its pass, on the engine's thread, in bucket order.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "core/dgc.h"
#include "schemes/exchange.h"

namespace zen {

// What a bucket brings along. Tensors are flat, contiguous and as long as the bucket.
struct DgcRequest {
  at::Tensor residual;  // undefined: no error feedback
  at::Tensor momentum;  // undefined: no momentum
  float scale = 1;      // the loss scale of the gradient
  std::vector<DgcSegment> segments;
};

class DgcCompression {
 public:
  // `tensor_parallel` may be null. Throws InvalidArgument if an option is out of range.
  DgcCompression(const DgcOptions& options, c10::intrusive_ptr<c10d::ProcessGroup> tensor_parallel);

  // Whether no bucket may be compressed before add_squares() has seen all of the iteration.
  bool clips() const { return dgc_.options().clip_norm > 0; }
  void add_squares(const Gradient& gradient, const DgcRequest& request);

  // The gradient together with its pass, for the exchange that is prepared next. Both, and the
  // memory, are the device's. Throws InvalidArgument if the memory does not fit the gradient.
  Gradient compressed(Device& device, Gradient gradient, const DgcRequest& request);

  // `last` so that the iteration ends when the exchange waits for others.
  std::unique_ptr<Exchange> ending_iteration(std::unique_ptr<Exchange> last);

  // May be called from any thread.
  DgcState state() const;
  void restore(const DgcState& state);

 private:
  class LastExchange;

  std::unique_ptr<DgcPool> pool_;
  mutable std::mutex mutex_;  // of dgc_
  Dgc dgc_;
  std::optional<double> squares_;  // of the iteration's gradients, not turned into clip_ yet
  float clip_ = 1;
};

}  // namespace zen
