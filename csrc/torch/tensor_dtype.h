// The dtypes that schemes and DGC work on, as torch names them.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "core/dtype.h"

namespace zen {

// None for a tensor of any other type.
inline std::optional<DType> scheme_dtype(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DType::f32;
    case at::kHalf:
      return DType::f16;
    case at::kBFloat16:
      return DType::bf16;
    default:
      return std::nullopt;
  }
}

inline std::string dtype_name(const at::Tensor& tensor) {
  return std::string(c10::getDtypeNames(tensor.scalar_type()).first);
}

}  // namespace zen
