// What was synchronised and what it cost, by bucket and in total. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "schemes/exchange.h"
#include "schemes/transport.h"

namespace zen {

struct BucketStats {
  int index = 0;
  std::string dtype;
  std::string scheme;
  bool packed = false;  // whether values were packed
  uint64_t numel = 0;
  int chunks = 0;
  Traffic traffic;
  uint64_t dense_bytes = 0;      // what a ring all-reduce of the bucket sends
  bool counts_nonzeros = false;  // whether the scheme looks at the elements
  Report report;
  StageSeconds seconds{};
};

struct Totals {
  uint64_t iterations = 0, buckets = 0;
  Traffic traffic;
  uint64_t dense_bytes = 0;
  StageSeconds seconds{};

  void add(const BucketStats& bucket);
};

class Statistics {
 public:
  struct Snapshot {
    Totals total;                      // finished iterations
    std::vector<BucketStats> buckets;  // of the last finished iteration
  };

  // Adds a bucket; `last` ends the iteration.
  void add(const BucketStats& bucket, bool last);
  Snapshot snapshot() const;

 private:
  mutable std::mutex mutex_;
  Snapshot finished_;
  std::vector<BucketStats> current_;
};

}  // namespace zen
