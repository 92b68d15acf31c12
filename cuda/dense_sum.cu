#include "cuda/dense_sum.h"

#include "cuda/error.h"

namespace zen::cuda {

namespace {

constexpr unsigned kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_arrays(const std::byte* const* arrays, unsigned count, uint64_t elements, float divisor,
               std::byte* result) {
  const uint64_t elem = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (elem >= elements) return;
  float sum = 0;
  for (unsigned at = 0; at < count; ++at)
    sum += to_float(reinterpret_cast<const T*>(arrays[at])[elem]);
  reinterpret_cast<T*>(result)[elem] = from_float<T>(sum / divisor);
}

}  // namespace

void dense_sum(DType dtype, const std::byte* const* arrays, unsigned count, uint64_t elements,
               float divisor, std::byte* result, cudaStream_t stream) {
  if (elements == 0) return;
  const dim3 grid(static_cast<unsigned>((elements + kThreads - 1) / kThreads));
  with_type(dtype, [&]<class T>(T) {
    launch(add_arrays<T>, grid, dim3(kThreads), 0, stream, arrays, count, elements, divisor,
           result);
  });
  check_launch("add_arrays");
}

}  // namespace zen::cuda
