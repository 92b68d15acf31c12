#include "torch/dgc_compression.h"

#include <string>
#include <utility>

#include "core/error.h"
#include "torch/dgc_pool.h"

namespace zen {

namespace {

std::byte* bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::byte*>(tensor.data_ptr()) : nullptr;
}

DgcMemory memory_of(const Gradient& gradient, const DgcRequest& request) {
  for (const at::Tensor* tensor : {&request.residual, &request.momentum}) {
    if (!tensor->defined()) continue;
    const bool is_float = tensor->scalar_type() == at::kFloat;
    const bool fits = static_cast<uint64_t>(tensor->numel()) == gradient.numel &&
                      tensor->is_contiguous() &&
                      (is_float || tensor->itemsize() == size_of(gradient.dtype));
    if (!fits)
      throw InvalidArgument("the memory of DGC has " + std::to_string(tensor->numel()) +
                            " elements of " + std::to_string(tensor->itemsize()) +
                            " bytes, the bucket has " + std::to_string(gradient.numel) + " " +
                            name_of(gradient.dtype) + " elements");
  }
  const bool is_float = !request.residual.defined() || request.residual.scalar_type() == at::kFloat;
  return {bytes_of(request.residual), bytes_of(request.momentum),
          is_float ? DType::f32 : gradient.dtype};
}

}  // namespace

// The samples of an iteration are complete when its last bucket has been prepared, and nobody waits
// for the threshold until the next iteration: it is found while the last messages travel.
class DgcCompression::LastExchange final : public Exchange {
 public:
  LastExchange(DgcCompression& compression, std::unique_ptr<Exchange> inner)
      : compression_(compression), inner_(std::move(inner)) {}

  void prepare() override { inner_->prepare(); }
  void post() override { inner_->post(); }
  void finish() override {
    {
      const std::lock_guard lock(compression_.mutex_);
      compression_.dgc_.end_iteration();
    }
    inner_->finish();
  }
  Report report() const override { return inner_->report(); }

 private:
  DgcCompression& compression_;
  std::unique_ptr<Exchange> inner_;
};

DgcCompression::DgcCompression(const DgcOptions& options,
                               c10::intrusive_ptr<c10d::ProcessGroup> tensor_parallel)
    : pool_(tensor_parallel ? std::make_unique<GroupPool>(std::move(tensor_parallel)) : nullptr),
      dgc_(options, pool_.get()) {}

void DgcCompression::add_squares(const Gradient& gradient, const DgcRequest& request) {
  squares_ = squares_.value_or(0) + sum_of_squares(gradient, 1 / request.scale, request.segments);
}

Gradient DgcCompression::compressed(Device& device, Gradient gradient, const DgcRequest& request) {
  const DgcMemory memory = memory_of(gradient, request);
  const std::lock_guard lock(mutex_);
  if (squares_) clip_ = dgc_.clip_factor(*std::exchange(squares_, std::nullopt));
  gradient.dgc =
      &dgc_.begin_bucket(device, gradient, memory, request.scale, clip_, request.segments);
  return gradient;
}

std::unique_ptr<Exchange> DgcCompression::ending_iteration(std::unique_ptr<Exchange> last) {
  return std::make_unique<LastExchange>(*this, std::move(last));
}

DgcState DgcCompression::state() const {
  const std::lock_guard lock(mutex_);
  return dgc_.state();
}

void DgcCompression::restore(const DgcState& state) {
  const std::lock_guard lock(mutex_);
  dgc_.restore(state);
}

}  // namespace zen
