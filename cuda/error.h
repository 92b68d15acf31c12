// Errors of the CUDA runtime as exceptions.
#pragma once

#include <string>

#include "core/error.h"
#include "cuda/portable.h"

namespace zen::cuda {

class CudaError : public Error {
 public:
  using Error::Error;
};

// Throws CudaError naming what was attempted.
inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw CudaError(std::string("CUDA: ") + what + " failed: " + cudaGetErrorString(error));
}

// Behind every launch: reports a launch that could not be queued, and clears the error.
inline void check_launch(const char* kernel) {
  check(cudaGetLastError(), kernel);
}

}  // namespace zen::cuda
