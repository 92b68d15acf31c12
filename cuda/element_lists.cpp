#include "cuda/element_lists.h"

#include <algorithm>
#include <vector>

#include "cuda/error.h"

namespace zen::cuda {

namespace {

constexpr size_t kMaxKept = 64;  // as the planner keeps placements

// Of owner 0; the others' lists follow it, in order.
const uint32_t* first_member(const Placement& placement) {
  for (int owner = 0; owner < placement.owners(); ++owner) {
    const Shard shard = placement.shard(owner, placement.all());
    if (shard.elements != 0) return shard.members;
  }
  return nullptr;
}

}  // namespace

const uint32_t* ElementLists::members(const Shard& shard, cudaStream_t stream,
                                      const Allocate& device, const Allocate& pinned,
                                      std::vector<Buffer>& held) {
  const Placement& placement = *shard.placement;
  const Key key{placement.numel(), placement.owners(), placement.seed()};
  const uint32_t* first = first_member(placement);
  if (lists_.size() == kMaxKept && lists_.count(key) == 0) lists_.clear();
  Buffer& kept = lists_[key];
  if (kept.bytes == 0 && placement.numel() != 0) {
    kept = device(placement.numel() * sizeof(uint32_t));
    held.push_back(pinned(kept.bytes));
    std::copy_n(reinterpret_cast<const std::byte*>(first), kept.bytes, held.back().data);
    check(cudaMemcpyAsync(kept.data, held.back().data, kept.bytes, cudaMemcpyHostToDevice, stream),
          "copying lists of elements to the device");
  }
  return reinterpret_cast<const uint32_t*>(kept.data) + (shard.members - first);
}

}  // namespace zen::cuda
