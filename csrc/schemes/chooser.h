// The scheme "auto": looks at the ranks' gradients and at the link, predicts what every scheme
// would cost, tries the most promising ones and keeps the fastest, for each bucket.
//
// 1. All ranks decide alike, because they decide by the same numbers: what one rank knows reaches
//    the others by gather(), at the same turn of the same bucket, with nothing else in flight.
// 2. A turn is one synchronisation of a bucket. When a bucket is new, when the density of its sum
//    has moved by half, and every `reprofile_every` turns it is profiled: some of its next turns
//    are trials of one candidate each, measured from a common start.
// 3. In between nothing is exchanged but gradients, and nothing is looked at.
// 4. If deterministic, the first look decides for good, by counts and standard rates: two runs over
//    the same gradients choose alike.
//
// docs/choosing.md explains the model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "core/gradient.h"
#include "schemes/candidates.h"
#include "schemes/findings.h"
#include "schemes/measured_rates.h"
#include "schemes/pipeline.h"
#include "schemes/transport.h"

namespace zen {

struct ChooserOptions {
  int profile_iterations = 6;  // the most trials of one profile; at least 1
  int reprofile_every = 500;   // turns; at least 1
  bool deterministic = false;
  Wishes wishes = {};
};

// What makes two gradients the same bucket. DDP may give a bucket's number to other parameters when
// it rebuilds its buckets: most then differ in size, and the rest show by their density.
struct BucketKey {
  int index = 0;
  DType dtype = DType::f32;
  uint64_t numel = 0;

  friend auto operator<=>(const BucketKey&, const BucketKey&) = default;
};

// One candidate, as explained. Times are the slowest rank's.
struct CandidateReport {
  Choosable choice;
  double bytes = 0;  // that the busiest rank sends or receives
  Seconds predicted;
  double measured = 0;  // fastest trial of the latest profile; 0: not tried
  double expected = 0;  // what was compared
};

struct BucketReport {
  BucketKey key;
  std::string reason;      // for the latest profile
  bool profiling = false;  // then what is chosen is only tried
  uint64_t turns = 0, profiles = 0;
  size_t chosen = 0;  // of candidates
  std::vector<CandidateReport> candidates;
  int ranks = 1, chunks = 1;
  double density = 0, density_of_sum = 0, skew = 1, packed_share = 1;
  std::vector<double> densification;  // of 2, 4, 8, ... ranks
  Rates rates;
};

// Used on one thread, but for reports() and pinned(), which any thread may call.
class Chooser {
 public:
  // `seconds` is a clock. REQUIRES: the transport has more than one rank.
  Chooser(const ChooserOptions& options, Transport& transport, Allocate allocate,
          std::function<double()> seconds);
  ~Chooser();

  // Whether this turn needs consult(), or needs to know how the one before ended: with nothing in
  // flight.
  bool is_due(const BucketKey& key);

  // What all ranks must mean alike when they consult.
  Layout subject(const BucketKey& key) const;

  // Collective. Looks at `gradient`, unless it is null because it lies elsewhere or is to be
  // compressed; `chunks` is how many a scheme would cut it into. Throws as gather() and agree() do.
  // Afterwards the turn's exchange must run with nothing else in flight.
  // REQUIRES: is_due(key), and nothing is in flight.
  void consult(const BucketKey& key, uint32_t sequence, const Gradient* gradient, int chunks);

  // What to use for this turn. REQUIRES: consult() has been called where it was due.
  Choosable choice(const BucketKey& key) const;

  // Around the turn's exchange.
  void begin(const BucketKey& key);
  void end(const BucketKey& key, const Report& report, const StageSeconds& stages);

  std::vector<BucketReport> reports() const;

  // Decisions for good; and how an earlier run decided, before the bucket's first turn.
  std::vector<std::pair<BucketKey, Choosable>> pinned() const;
  void pin(const BucketKey& key, const Choosable& choice);

 private:
  struct Candidate;
  struct Bucket;

  Bucket& known(const BucketKey& key, uint32_t sequence);
  std::vector<Findings> ask(const BucketKey& key, const Bucket& bucket, uint32_t sequence,
                            const Gradient* gradient);
  void adopt_pinned(const BucketKey& key);
  void absorb(const std::vector<Findings>& findings);
  void notice_density(Bucket& bucket, double density);
  void predict_all(const BucketKey& key, Bucket& bucket, const Sparsity& sparsity);
  void try_or_settle(const BucketKey& key, Bucket& bucket, uint32_t sequence);
  void start_trial(const BucketKey& key, Bucket& bucket, size_t candidate, uint32_t sequence);
  void settle(Bucket& bucket, size_t best);
  Rates rates(const Bucket& bucket) const;
  void report(const BucketKey& key, const Bucket& bucket, const Sparsity* sparsity);

  ChooserOptions options_;
  Transport& transport_;
  Allocate allocate_;
  std::function<double()> seconds_;
  std::map<BucketKey, Bucket> buckets_;
  LinkRates link_;
  bool has_measured_ = false;  // anything: link_ is more than assumptions
  Trial latest_;               // that the other ranks have not been told of

  mutable std::mutex mutex_;  // of what follows
  std::map<BucketKey, BucketReport> reports_;
  std::map<BucketKey, Choosable> pinned_;
};

}  // namespace zen
