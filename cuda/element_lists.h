// The lists I_0 ... I_{n-1} of placements of single elements, as a device keeps them: 4 bytes for
// each element, copied once for each placement that is in use.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "core/buffer.h"
#include "core/placement.h"
#include "cuda/portable.h"

namespace zen::cuda {

class ElementLists {
 public:
  // The shard's members in device memory. What is copied for it is read in stream order from memory
  // of `pinned`, which goes to `held`. REQUIRES: a placement of single elements.
  const uint32_t* members(const Shard& shard, cudaStream_t stream, const Allocate& device,
                          const Allocate& pinned, std::vector<Buffer>& held);

 private:
  // Equal placements have equal lists, whatever their addresses.
  using Key = std::tuple<uint64_t, int, uint32_t>;  // numel, owners, seed

  std::map<Key, Buffer> lists_;
};

}  // namespace zen::cuda
