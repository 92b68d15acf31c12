// What the chooser chooses from.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "schemes/exchange.h"

namespace zen {

// A scheme, and how it is used.
struct Choosable {
  const Scheme* scheme = nullptr;
  bool pack_values = false;

  std::string name() const;  // "balanced_parallelism, packed"
  friend bool operator==(const Choosable&, const Choosable&) = default;
};

struct Wishes {
  std::optional<bool> pack_values = {};  // none: whatever is faster
  std::optional<DType> wire_dtype = {};  // of float32 gradients
  bool compressed = false;               // dense schemes would undo it
};

// Never empty, the first of them a good one to begin with. All are lossless but for what the wishes
// say; `allreduce` honours no wire_dtype and is there because it is exact.
std::vector<Choosable> choosable(DType dtype, const Wishes& wishes);

}  // namespace zen
