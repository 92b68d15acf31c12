#include "torch/statistics.h"

#include <utility>

namespace zen {

void Totals::add(const BucketStats& bucket) {
  ++buckets;
  traffic.bytes_out += bucket.traffic.bytes_out;
  traffic.bytes_in += bucket.traffic.bytes_in;
  dense_bytes += bucket.dense_bytes;
  for (int stage = 0; stage < kStages; ++stage) seconds[stage] += bucket.seconds[stage];
}

void Statistics::add(const BucketStats& bucket, bool last) {
  const std::lock_guard lock(mutex_);
  current_.push_back(bucket);
  if (!last) return;
  for (const BucketStats& finished : current_) finished_.total.add(finished);
  ++finished_.total.iterations;
  finished_.buckets = std::exchange(current_, {});
}

Statistics::Snapshot Statistics::snapshot() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

}  // namespace zen
