// How one gradient is to be synchronised: the scheme, who owns which word and how many chunks. The
// plan depends on nothing but its arguments, so that all ranks make the same one.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "core/dtype.h"
#include "core/placement.h"
#include "schemes/exchange.h"
#include "schemes/transport.h"

namespace zen {

// The most recently used placements of one group, by number of elements.
class PlacementCache {
 public:
  // Holds placements of at most `capacity` elements together, and always the latest one. At one
  // byte per 16 elements the default takes up to 128 MB, for models of up to 2^31 parameters.
  PlacementCache(PlacementKind kind, int owners, uint32_t seed, uint64_t capacity = 1ull << 31)
      : kind_(kind), owners_(owners), seed_(seed), capacity_(capacity) {}

  std::shared_ptr<const Placement> get(uint64_t numel);
  size_t size() const { return recent_.size(); }

 private:
  using Recent = std::list<std::shared_ptr<const Placement>>;

  PlacementKind kind_;
  int owners_;
  uint32_t seed_;
  uint64_t capacity_, held_ = 0;
  Recent recent_;  // most recently used first
  std::unordered_map<uint64_t, Recent::iterator> by_numel_;
};

struct Plan {
  const Scheme* scheme = nullptr;
  std::shared_ptr<const Placement> placement;
  int chunks = 1;
  uint64_t fingerprint = 0;
};

class Planner {
 public:
  // `chunks` 0 leaves the number to the planner. Throws InvalidArgument if it is not in
  // [0, kMaxChunks], or if the scheme is not known.
  Planner(const std::string& scheme, int chunks, uint32_t seed, int ranks, const Traits& traits);

  const Scheme& scheme() const { return scheme_; }
  Plan plan(DType dtype, uint64_t numel, float divisor);

 private:
  int chunks(uint64_t bytes) const;

  const Scheme& scheme_;
  int chunks_;
  uint32_t seed_;
  int ranks_, max_chunks_;
  PlacementCache placements_;
};

}  // namespace zen
