// How one gradient is to be synchronised: the scheme, who owns which word and how many chunks. The
// plan depends on nothing but its arguments, so that all ranks make the same one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/dtype.h"
#include "core/placement.h"
#include "schemes/exchange.h"
#include "schemes/transport.h"

namespace zen {

struct Plan {
  const Scheme* scheme = nullptr;
  std::shared_ptr<const Placement> placement;
  int chunks = 1;
  std::optional<DType> wire_dtype = {};  // as in Context
  uint64_t fingerprint = 0;
};

// Used by one thread at a time.
class Planner {
 public:
  // `chunks` 0 leaves the number to the planner; `wire_dtype` is for float32 gradients and schemes
  // that can narrow values, everything else travels as it is. Throws InvalidArgument if `chunks` is
  // not in [0, kMaxChunks].
  Planner(int chunks, uint32_t seed, int ranks, const Traits& traits,
          std::optional<DType> wire_dtype = {});

  Plan plan(const Scheme& scheme, DType dtype, uint64_t numel, float divisor);

  // That a gradient of so many bytes is cut into.
  int chunks(uint64_t bytes) const;

 private:
  std::shared_ptr<const Placement> placement(const Scheme& scheme, uint64_t numel);

  int chunks_;
  uint32_t seed_;
  int ranks_, max_chunks_;
  std::optional<DType> wire_dtype_;
  std::map<uint64_t, std::shared_ptr<const Placement>> kept_;  // of hashed elements, by numel
};

}  // namespace zen
