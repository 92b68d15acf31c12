// The one place that knows who compiles a kernel: nvcc for a GPU, or an ordinary C++ compiler for
// the simulator of tests/cuda, which runs the same text on the CPU.
//
// A kernel needs no more than this header beyond what CUDA C++ has. Shared memory is declared by
// macro, since the simulator keeps it on the heap.
#pragma once

#ifdef ZEN_CUDA_SIMULATOR

#include <functional>

#include "simulator/kernel.h"
#include "simulator/runtime.h"

#define ZEN_SHARED(type, name, count)    \
  type* const name = static_cast<type*>( \
      ::zen::simulator::current_block()->shared(__FILE__, __LINE__, sizeof(type) * (count)))
#define ZEN_UNROLL
#define ZEN_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(::zen::simulator::current_block()->dynamic_shared())

#else

#include <cuda_runtime.h>

#define ZEN_UNROLL _Pragma("unroll")
#define ZEN_SHARED(type, name, count) __shared__ type name[count]
#define ZEN_DYNAMIC_SHARED(type, name)                               \
  extern __shared__ __align__(16) unsigned char zen_shared_memory[]; \
  type* const name = reinterpret_cast<type*>(zen_shared_memory)

#endif

#if defined(ZEN_CUDA_SIMULATOR) || defined(__CUDACC__)

namespace zen::cuda {

// Queues `kernel` on `stream`. Arguments are copied at once. Errors of the launch itself are left
// to cudaGetLastError(): see check_launch() in error.h.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            cudaStream_t stream, Arguments... arguments) {
#ifdef ZEN_CUDA_SIMULATOR
  stream->machine->launch(stream, grid, block, shared_bytes, [=] { kernel(arguments...); });
#else
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
#endif
}

}  // namespace zen::cuda

#endif
