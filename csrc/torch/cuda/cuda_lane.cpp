// Tensors of one GPU: CudaDevice on a stream of its own, and messages over whatever moves them.
//
//   NCCL   collectives on the messages where they are
//   gloo   page-locked memory of the host and back
//
// Nothing here waits on the threads of autograd: they record an event (Arrival), and the engine's
// thread works behind it on this stream. Waits of that thread end at the deadline, because NCCL
// would wait for a dead peer for ever.
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <string>

#include "core/error.h"
#include "cuda/cuda_device.h"
#include "cuda/error.h"
#include "torch/cuda/staged_transport.h"
#include "torch/lane.h"
#include "torch/poll.h"

namespace zen {

namespace {

// Memory of torch's caching allocator, in the order of `stream`.
Allocate caching_allocator(c10::cuda::CUDAStream stream) {
  return [stream](size_t bytes) -> Buffer {
    const c10::cuda::CUDAGuard guard(stream.device());
    void* memory = c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, stream.stream());
    return {static_cast<std::byte*>(memory), bytes,
            std::shared_ptr<void>(memory, c10::cuda::CUDACachingAllocator::raw_delete)};
  };
}

// Page-locked memory, which torch caches too.
Buffer pinned_memory(size_t bytes) {
  const auto options = at::TensorOptions(at::kByte).pinned_memory(true);
  auto memory = std::make_shared<at::Tensor>(at::empty({static_cast<int64_t>(bytes)}, options));
  return {static_cast<std::byte*>(memory->data_ptr()), bytes, memory};
}

class CudaLane final : public Lane {
 public:
  CudaLane(at::Device device, const LaneOptions& options)
      : stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())),
        timeout_(options.timeout),
        done_(c10::DeviceType::CUDA),
        device_(stream_.stream(), caching_allocator(stream_), pinned_memory, [this] { settle(); }) {
    const bool staged = C10dTransport::backend_name(options.group, c10::DeviceType::CUDA) == "gloo";
    const Mode mode = mode_on(c10::DeviceType::CUDA, options);
    if (!staged) {
      group_ = C10dTransport::make(options.group, mode,
                                   {caching_allocator(stream_), device, [this] { settle(); }});
      return;
    }
    group_ = C10dTransport::make(options.group, mode, {.allocate = pinned_memory});
    staged_ = std::make_unique<StagedTransport>(
        *group_,
        Staging{stream_.stream(), caching_allocator(stream_), pinned_memory, [this] { settle(); }});
  }

  Device& device() override { return device_; }
  Transport& transport() override {
    if (staged_) return *staged_;
    return *group_;
  }
  C10dTransport& group() override { return *group_; }
  std::optional<c10::Stream> stream() const override { return stream_.unwrap(); }

 private:
  void settle() {
    done_.record(stream_.unwrap());
    if (!poll_until([this] { return done_.query(); }, timeout_))
      throw TransportError("the work of " + stream_.device().str() + " did not end within " +
                           std::to_string(timeout_.count() / 1000.0) +
                           " s: it waits for a rank that does not answer");
  }

  c10::cuda::CUDAStream stream_;
  std::chrono::milliseconds timeout_;
  c10::Event done_;
  cuda::CudaDevice device_;
  std::unique_ptr<C10dTransport> group_;
  std::unique_ptr<StagedTransport> staged_;
};

}  // namespace

bool built_for_cuda() {
  return true;
}

std::unique_ptr<Lane> make_cuda_lane(at::Device device, const LaneOptions& options) {
  if (!device.is_cuda())
    throw InvalidArgument("zensync handles tensors of CPUs and GPUs, not of " + device.str());
  return std::make_unique<CudaLane>(device, options);
}

bool is_captured(const c10::Stream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda::check(cudaStreamIsCapturing(c10::cuda::CUDAStream(stream).stream(), &status),
              "asking whether a stream is being captured");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace zen
