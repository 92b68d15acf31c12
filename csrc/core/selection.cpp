#include "core/selection.h"

#include <cstring>
#include <utility>

namespace zen {

namespace {

constexpr size_t kCacheLine = 64;

size_t round_up_line(size_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

// Cuts one allocation into slices that begin at cache lines, in the order of the calls.
class Carver {
 public:
  explicit Carver(Buffer whole) : whole_(std::move(whole)) {}

  Buffer next(size_t bytes) {
    const Buffer slice = whole_.slice(used_, bytes);
    used_ += round_up_line(bytes);
    return slice;
  }

 private:
  Buffer whole_;
  size_t used_ = 0;
};

}  // namespace

Selection empty_selection(DType dtype, const Placement& placement, WordRange range,
                          const Allocate& allocate) {
  Selection selection(static_cast<size_t>(placement.owners()));
  size_t message_bytes = 0, presence_bytes = 0, mask_bytes = 0;
  for (int owner = 0; owner < placement.owners(); ++owner) {
    ShardSelection& shard = selection[static_cast<size_t>(owner)];
    shard.shard = placement.shard(owner, range);
    shard.dtype = dtype;
    message_bytes += round_up_line(selection_capacity(shard.shard, dtype));
    presence_bytes += round_up_line(shard.shard.presence_words() * 8);
    mask_bytes += round_up_line(shard.shard.slots * 8);
  }
  Carver messages(allocate(message_bytes)), presence(allocate(presence_bytes)),
      masks(allocate(mask_bytes));
  for (ShardSelection& shard : selection) {
    shard.message = messages.next(selection_capacity(shard.shard, dtype));
    shard.presence = presence.next(shard.shard.presence_words() * 8);
    shard.masks = masks.next(shard.shard.slots * 8);
    std::memset(shard.presence.data, 0, shard.presence.bytes);
  }
  return selection;
}

}  // namespace zen
