#include "torch/python_engine.h"

#include <ATen/MemoryOverlap.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"

#if defined(__GNUC__) && !defined(__clang__)
// A false alarm of gcc 12 about the empty std::optional<std::function> in PythonFutureWrapper.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace zen {

namespace {

namespace py = pybind11;
using IValueFuture = c10::intrusive_ptr<c10::ivalue::Future>;

// Completes a future whose value is a Python tensor. DDP refuses a C++ tensor as the result of a
// Python hook, so the tensor is wrapped while the GIL is held.
class FutureCompletion final : public Completion {
 public:
  // `before` runs on the engine's thread before the future completes.
  FutureCompletion(const at::Tensor& value, std::function<void()> before)
      : value_(torch::jit::toIValue(py::cast(value), c10::PyObjectType::get())),
        before_(std::move(before)),
        storages_(storages_of(value)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::PyObjectType::get(),
                                                         devices_of(value))) {}

  const IValueFuture& future() const { return future_; }

  void done() noexcept override {
    try {
      if (before_) before_();
    } catch (const std::exception& error) {
      return failed(error.what());
    }
    // The list says which devices have to be waited for; without it the value would be pickled to
    // find out.
    future_->markCompleted(value_, storages_);
  }

  void failed(const std::string& message) noexcept override {
    future_->setError(std::make_exception_ptr(std::runtime_error(message)));
  }

 private:
  using Storages = std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>>;

  // For the future, memory of the CPU is ready when it is completed.
  static std::vector<c10::Device> devices_of(const at::Tensor& value) {
    return value.is_cpu() ? std::vector<c10::Device>{} : std::vector{value.device()};
  }
  static Storages storages_of(const at::Tensor& value) {
    if (value.is_cpu() || !value.has_storage()) return {};
    return {value.storage().getWeakStorageImpl()};
  }

  c10::IValue value_;
  std::function<void()> before_;
  Storages storages_;
  IValueFuture future_;
};

PythonEngine::Future submit(Engine& engine, Request request, const at::Tensor& value,
                            std::function<void()> before) {
  auto completion = std::make_unique<FutureCompletion>(value, std::move(before));
  auto future = std::make_shared<torch::jit::PythonFutureWrapper>(completion->future());
  request.completion = std::move(completion);
  engine.submit(std::move(request));
  return future;
}

}  // namespace

PythonEngine::PythonEngine(ProcessGroup group, const Options& options) : process_(getpid()) {
  const py::gil_scoped_release no_gil;  // waits for the peers
  engine_ = std::make_unique<Engine>(std::move(group), options);
}

// A forked child has the object but not the thread: there is nothing to join.
bool PythonEngine::forked() const {
  return process_ != getpid();
}

void PythonEngine::refuse_if_forked() const {
  if (forked())
    throw InvalidArgument(
        "zensync: this process was forked after the engine was made, and a child has neither its "
        "thread nor its connections: fork first, or start processes by spawn");
}

PythonEngine::~PythonEngine() {
  if (forked()) {
    static_cast<void>(engine_.release());
    return;
  }
  // A callback of one of the engine's own futures dropped the last reference: a thread cannot join
  // itself, so another one does.
  if (engine_->on_own_thread()) {
    std::thread([engine = std::move(engine_)]() mutable { engine.reset(); }).detach();
    return;
  }
  // The engine's thread may need the GIL to drop its last reference to a tensor.
  const py::gil_scoped_release no_gil;
  engine_.reset();
}

PythonEngine::Future PythonEngine::hook(c10d::GradBucket& bucket, std::optional<DgcRequest> dgc) {
  refuse_if_forked();
  const at::Tensor& buffer = bucket.getBuffer();
  const auto index = static_cast<int>(bucket.getIndex());
  return submit(*engine_,
                {.tensor = buffer,
                 .reduce = Reduce::mean,
                 .name = "bucket " + std::to_string(index),
                 .bucket = index,
                 .last = bucket.isLast(),
                 .always_agree = false,
                 .dgc = std::move(dgc),
                 .completion = nullptr},
                buffer, nullptr);
}

PythonEngine::Future PythonEngine::all_reduce(const at::Tensor& tensor, Reduce reduce) {
  refuse_if_forked();
  check_supported(tensor, reduce);
  if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes)
    throw InvalidArgument(
        "several elements of the tensor share one place in memory (expand()?): reduce a clone()");
  const at::Tensor target = tensor.detach();
  const bool in_place = target.is_contiguous() && !target.is_neg();
  const at::Tensor flat = in_place ? target : target.resolve_neg().contiguous();
  std::function<void()> copy_back;
  if (!in_place)
    copy_back = [target, flat, state = at::ThreadLocalState()] {
      const at::ThreadLocalStateGuard guard(state);  // inference mode, for one
      target.copy_(flat);
    };
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  return submit(*engine_,
                {.tensor = flat,
                 .reduce = reduce,
                 .name = "all_reduce of a tensor of shape " + c10::str(tensor.sizes()),
                 .bucket = 0,
                 .last = true,
                 .always_agree = true,
                 .dgc = std::nullopt,
                 .completion = nullptr},
                tensor, std::move(copy_back));
}

void PythonEngine::close() {
  if (forked()) return;
  if (engine_->on_own_thread())
    throw InvalidArgument(
        "zensync: close() was called in a callback of a future of this State: call it outside");
  const py::gil_scoped_release no_gil;
  engine_->close();
}

}  // namespace zen
