// The memory that an exchange reads and then overwrites.
#pragma once

#include <cstdint>

#include "core/buffer.h"
#include "core/dtype.h"

namespace zen {

struct DgcPass;

// A flat, contiguous gradient. The caller keeps `data` alive for the whole exchange.
struct Gradient {
  Buffer data;
  DType dtype = DType::f32;
  uint64_t numel = 0;
  DgcPass* dgc = nullptr;  // if set, selecting lists what this pass sends, not all non-zeros
};

}  // namespace zen
