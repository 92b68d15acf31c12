// Values of opened messages, whatever their type.
#pragma once

#include "cuda/open.h"
#include "cuda/tile.cuh"

namespace zen::cuda {

// Value `index` of a message as float32: exact.
__device__ inline float value_at(const OpenJob& input, uint64_t index) {
  const std::byte* values = input.values();
  switch (input.dtype) {
    case DType::f16:
      return to_float(reinterpret_cast<const f16*>(values)[index]);
    case DType::bf16:
      return to_float(reinterpret_cast<const bf16*>(values)[index]);
    case DType::f32:
      break;
  }
  return reinterpret_cast<const float*>(values)[index];
}

// The bits that value `index` has in a gradient of values of `Bits`: its own, or for a float32
// gradient those of the value widened.
template <class Bits>
__device__ Bits bits_at(const OpenJob& input, uint64_t index) {
  if (sizeof(Bits) == 4 && input.dtype != DType::f32)
    return static_cast<Bits>(std::bit_cast<uint32_t>(value_at(input, index)));
  return reinterpret_cast<const Bits*>(input.values())[index];
}

}  // namespace zen::cuda
