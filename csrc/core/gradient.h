// The memory that an exchange reads and then overwrites.
#pragma once

#include <cstdint>

#include "core/buffer.h"
#include "core/dtype.h"

namespace zen {

// A flat, contiguous gradient. The caller keeps `data` alive for the whole exchange.
struct Gradient {
  Buffer data;
  DType dtype = DType::f32;
  uint64_t numel = 0;
};

}  // namespace zen
