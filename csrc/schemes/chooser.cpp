#include "schemes/chooser.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "core/error.h"
#include "schemes/fingerprint.h"

namespace zen {

namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

// A candidate that was never tried may be this much faster than predicted; one that was tried once
// this much faster than it was then. So predictions that are wrong by less are found out.
constexpr double kUntriedHope = 0.8, kTriedOnceHope = 0.95;
constexpr int kTrialsEach = 2;

// Another candidate must be faster than the one in use by more than what measurements vary.
constexpr double kWorthChanging = 0.95;

// A density has moved when it has been so far off for so many turns: single batches vary.
constexpr double kMovedUp = 1.5, kMovedDown = 0.5;
constexpr int kMovedTurns = 8;

// Together they keep what all ranks send each other below some 20 kB a rank and cost little time.
constexpr size_t kSampledBlocks = 512, kSampledBlocksOfAll = 2048, kLeastSampledBlocks = 32;

size_t sample_room(uint64_t numel, int ranks) {
  const size_t blocks = (Placement::words_for(numel) + kBlockWords - 1) / kBlockWords;
  const size_t each = kSampledBlocksOfAll / static_cast<size_t>(ranks);
  return std::min(blocks, std::clamp(each, kLeastSampledBlocks, kSampledBlocks));
}

bool moved_between(double now, double then) {
  return now > then * kMovedUp || now < then * kMovedDown;
}

std::string description_of(const BucketKey& key, const ChooserOptions& options) {
  const auto packing = [](std::optional<bool> wish) {
    return wish ? (*wish ? "yes" : "no") : "auto";
  };
  return "bucket " + std::to_string(key.index) + ", " + std::to_string(key.numel) + " " +
         name_of(key.dtype) + " elements by auto, profile_iterations " +
         std::to_string(options.profile_iterations) + ", reprofile_every " +
         std::to_string(options.reprofile_every) +
         (options.deterministic ? ", deterministic" : "") + ", pack_values " +
         packing(options.wishes.pack_values) +
         (options.wishes.wire_dtype ? std::string(" as ") + name_of(*options.wishes.wire_dtype)
                                    : "") +
         (options.wishes.compressed ? ", compressed" : "");
}

uint64_t fingerprint_of(const BucketKey& key) {
  Fingerprint fingerprint;
  fingerprint.add("profile");
  fingerprint.add(static_cast<uint64_t>(key.index));
  fingerprint.add(static_cast<uint64_t>(key.dtype));
  fingerprint.add(key.numel);
  return fingerprint.result();
}

// Nothing is sent under it but what gather() and meet() send: phase 0 and 1.
Tag tag_of(const BucketKey& key, uint32_t sequence, uint8_t phase) {
  return {static_cast<uint32_t>(fingerprint_of(key)), sequence, phase, 0};
}

std::optional<Sparsity> sparsity_of(uint64_t numel, const std::vector<Findings>& findings) {
  std::vector<Look> looks;
  std::vector<double> listed;
  for (const Findings& of_rank : findings) {
    if (of_rank.look.numel == numel) looks.push_back(of_rank.look);
    if (of_rank.listed >= 0) listed.push_back(of_rank.listed);
  }
  if (looks.size() == findings.size()) return Sparsity(std::move(looks));
  if (listed.size() == findings.size())
    return Sparsity(numel, std::move(listed), findings[0].listed_in_sum);
  return std::nullopt;
}

}  // namespace

struct Chooser::Candidate {
  Choosable choice;
  Prediction prediction;
  Seconds predicted;
  double measured = 0;    // the fastest of this profile's trials
  int trials = 0;         // of this profile
  double correction = 1;  // measured over predicted time, of the last profile that tried it

  double expected() const { return trials > 0 ? measured : predicted.total * correction; }

  // The least time that it might take.
  double hoped() const {
    if (trials == 0) return kUntriedHope * expected();
    if (trials >= kTrialsEach) return measured;
    return kTriedOnceHope * std::min(measured, (measured + predicted.total) / 2);
  }
};

struct Chooser::Bucket {
  std::vector<Candidate> candidates;
  int chunks = 1;
  WorkFactors work;
  size_t current = 0;                  // of candidates: what this turn uses
  std::optional<size_t> settled = {};  // what the latest profile ended with
  std::string reason = "new";          // of the latest profile

  uint64_t turns = 0, profiles = 0;
  uint64_t next_consultation = 0;  // a number of turns
  bool profiling = false;
  bool thorough = true;  // the profile counts everything, and may try every candidate
  int trials_left = 0;
  bool in_flight = false, in_trial = false;
  double begun = 0, round_seconds = 0;

  // Of the latest turn whose scheme counts; the sum's is the same on all ranks. -1: not known.
  double listed = -1, listed_in_sum = -1;
  double listed_in_sum_then = -1;  // in the first turn after the profile
  double density_then = -1;        // of the sum, as the latest profile saw it
  int moved_turns = 0;

  bool has_moved() const { return moved_turns >= kMovedTurns; }
  void start_profile(int trials);
  template <class Value>
  size_t least(const Value& value) const {
    const auto less = [&](const Candidate& a, const Candidate& b) { return value(a) < value(b); };
    return static_cast<size_t>(std::ranges::min_element(candidates, less) - candidates.begin());
  }
};

// A bucket that goes on as before is measured once more, to see whether the link or the work has
// changed.
void Chooser::Bucket::start_profile(int trials) {
  profiling = true;
  thorough = false;
  trials_left = 1;
  ++profiles;
  for (Candidate& candidate : candidates) candidate.trials = 0;
  if (settled && !has_moved()) {
    reason = "its time had come";
    return;
  }
  if (settled) reason = "the density of its sum moved by half";
  thorough = true;
  trials_left = trials;
}

Chooser::Chooser(const ChooserOptions& options, Transport& transport, Allocate allocate,
                 std::function<double()> seconds)
    : options_(options),
      transport_(transport),
      allocate_(std::move(allocate)),
      seconds_(std::move(seconds)) {
  if (options.profile_iterations < 1)
    throw InvalidArgument("profile_iterations is " + std::to_string(options.profile_iterations) +
                          ": it must be at least 1");
  if (options.reprofile_every < 1)
    throw InvalidArgument("reprofile_every is " + std::to_string(options.reprofile_every) +
                          ": it must be at least 1");
}

Chooser::~Chooser() = default;

bool Chooser::is_due(const BucketKey& key) {
  if (buckets_.count(key) == 0) adopt_pinned(key);
  const auto found = buckets_.find(key);
  if (found == buckets_.end()) return true;
  const Bucket& bucket = found->second;
  return bucket.in_flight || bucket.turns >= bucket.next_consultation || bucket.has_moved();
}

// A decision of an earlier run needs no look.
void Chooser::adopt_pinned(const BucketKey& key) {
  const std::lock_guard lock(mutex_);
  const auto pinned = pinned_.find(key);
  if (pinned == pinned_.end()) return;
  Bucket& bucket = buckets_[key];
  bucket.candidates.push_back({.choice = pinned->second, .prediction = {}, .predicted = {}});
  bucket.settled = 0;
  bucket.reason = "an earlier run";
  bucket.next_consultation = kNever;
  BucketReport& report = reports_[key];
  report.key = key;
  report.reason = bucket.reason;
  report.candidates.emplace_back().choice = pinned->second;
}

void Chooser::pin(const BucketKey& key, const Choosable& choice) {
  const std::lock_guard lock(mutex_);
  pinned_[key] = choice;
}

Layout Chooser::subject(const BucketKey& key) const {
  const std::string description = description_of(key, options_);
  Fingerprint fingerprint;
  fingerprint.add(description);
  return {fingerprint.result(), description};
}

void Chooser::consult(const BucketKey& key, uint32_t sequence, const Gradient* gradient,
                      int chunks) {
  Bucket& bucket = known(key, sequence);
  bucket.chunks = chunks;
  if (!bucket.profiling) bucket.start_profile(options_.profile_iterations);
  const std::vector<Findings> findings = ask(key, bucket, sequence, gradient);
  absorb(findings);
  const std::optional<Sparsity> sparsity = sparsity_of(key.numel, findings);
  if (sparsity) {
    notice_density(bucket, sparsity->density_of_sum());
    predict_all(key, bucket, *sparsity);
    try_or_settle(key, bucket, sequence);
  } else {
    start_trial(key, bucket, 0, sequence);
  }
  report(key, bucket, sparsity ? &*sparsity : nullptr);
}

// Schemes that do not count say nothing between two profiles.
void Chooser::notice_density(Bucket& bucket, double density) {
  if (bucket.settled && !bucket.thorough && moved_between(density, bucket.density_then)) {
    bucket.reason = "the density of its sum had moved by half";
    bucket.thorough = true;
    bucket.trials_left = options_.profile_iterations;
  }
  bucket.density_then = density;
}

// All ranks meet here when a bucket is new: from then on they count its turns alike.
Chooser::Bucket& Chooser::known(const BucketKey& key, uint32_t sequence) {
  const auto found = buckets_.find(key);
  if (found != buckets_.end()) return found->second;
  const std::string description =
      subject(key).description + ", number " + std::to_string(sequence) + " on this group";
  Fingerprint fingerprint;
  fingerprint.add(description);
  transport_.agree(fingerprint.result(), description);
  Bucket& bucket = buckets_[key];
  for (const Choosable& choice : choosable(key.dtype, options_.wishes))
    bucket.candidates.push_back({.choice = choice, .prediction = {}, .predicted = {}});
  return bucket;
}

std::vector<Findings> Chooser::ask(const BucketKey& key, const Bucket& bucket, uint32_t sequence,
                                   const Gradient* gradient) {
  const size_t room = sample_room(key.numel, transport_.size());
  Findings own;
  if (gradient != nullptr) own.look = look_at(*gradient, bucket.thorough, room);
  own.listed = bucket.listed;
  own.listed_in_sum = bucket.listed_in_sum;
  own.trial = std::exchange(latest_, {});
  return gather(transport_, allocate_, tag_of(key, sequence, 0), own, room);
}

void Chooser::absorb(const std::vector<Findings>& findings) {
  const Trial trial = slowest(findings);
  if (trial.bucket == 0) return;
  for (auto& [key, bucket] : buckets_) {
    if (fingerprint_of(key) != trial.bucket) continue;
    has_measured_ = true;
    Candidate& tried = bucket.candidates.at(trial.candidate);
    if (!tried.prediction.bytes_out.empty())
      learn(link_, bucket.work, trial, tried.choice, tried.prediction, bucket.chunks,
            transport_.size());
    tried.measured = tried.trials == 0 ? trial.seconds : std::min(tried.measured, trial.seconds);
    ++tried.trials;
  }
}

void Chooser::predict_all(const BucketKey& key, Bucket& bucket, const Sparsity& sparsity) {
  const Rates with = rates(bucket);
  for (Candidate& candidate : bucket.candidates) {
    const Scheme& scheme = *candidate.choice.scheme;
    Usage usage{.dtype = key.dtype,
                .wire = key.dtype,
                .chunks = bucket.chunks,
                .pack_values = candidate.choice.pack_values};
    if (scheme.narrows_values && key.dtype == DType::f32)
      usage.wire = options_.wishes.wire_dtype.value_or(key.dtype);
    candidate.prediction = predict(shape_of(scheme), usage, sparsity);
    candidate.predicted = seconds_of(candidate.prediction, with, shape_of(scheme), bucket.chunks);
  }
}

void Chooser::try_or_settle(const BucketKey& key, Bucket& bucket, uint32_t sequence) {
  const size_t best = bucket.least([](const Candidate& one) { return one.expected(); });
  size_t next = bucket.least([](const Candidate& one) { return one.hoped(); });
  if (!bucket.thorough) next = *bucket.settled;
  if (!has_measured_) next = 0;  // something has to be measured first, whatever is fastest
  const bool knows_enough = bucket.candidates[next].trials >= kTrialsEach;
  if (options_.deterministic || bucket.trials_left == 0 || knows_enough)
    settle(bucket, best);
  else
    start_trial(key, bucket, next, sequence);
}

void Chooser::start_trial(const BucketKey& key, Bucket& bucket, size_t candidate,
                          uint32_t sequence) {
  bucket.current = candidate;
  bucket.in_trial = true;
  --bucket.trials_left;
  bucket.next_consultation = bucket.turns + 1;
  const double before = seconds_();
  meet(transport_, allocate_, tag_of(key, sequence, 1));
  bucket.round_seconds = seconds_() - before;
}

void Chooser::settle(Bucket& bucket, size_t best) {
  const auto expected = [&](size_t index) { return bucket.candidates[index].expected(); };
  if (bucket.settled && expected(best) > kWorthChanging * expected(*bucket.settled))
    best = *bucket.settled;
  bucket.settled = bucket.current = best;
  bucket.profiling = bucket.in_trial = false;
  bucket.moved_turns = 0;
  bucket.listed_in_sum_then = -1;
  bucket.next_consultation = options_.deterministic
                                 ? kNever
                                 : bucket.turns + static_cast<uint64_t>(options_.reprofile_every);
  for (Candidate& candidate : bucket.candidates)
    if (candidate.trials > 0 && candidate.predicted.total > 0)
      candidate.correction = candidate.measured / candidate.predicted.total;
}

Rates Chooser::rates(const Bucket& bucket) const {
  return options_.deterministic ? Rates{} : rates_of(link_, bucket.work);
}

Choosable Chooser::choice(const BucketKey& key) const {
  const Bucket& bucket = buckets_.at(key);
  return bucket.candidates[bucket.current].choice;
}

void Chooser::begin(const BucketKey& key) {
  Bucket& bucket = buckets_.at(key);
  bucket.in_flight = true;
  bucket.begun = seconds_();
}

void Chooser::end(const BucketKey& key, const Report& report, const StageSeconds& stages) {
  Bucket& bucket = buckets_.at(key);
  bucket.in_flight = false;
  ++bucket.turns;
  if (bucket.in_trial)
    latest_ = {.bucket = fingerprint_of(key),
               .candidate = bucket.current,
               .seconds = seconds_() - bucket.begun,
               .round_seconds = bucket.round_seconds,
               .stages = stages};
  if (!bucket.candidates[bucket.current].choice.scheme->has_placement) return;
  bucket.listed = static_cast<double>(report.nonzeros);
  bucket.listed_in_sum = static_cast<double>(report.nonzeros_summed);
  if (bucket.profiling || options_.deterministic) return;
  if (bucket.listed_in_sum_then < 0) bucket.listed_in_sum_then = bucket.listed_in_sum;
  const bool moved = moved_between(bucket.listed_in_sum, bucket.listed_in_sum_then);
  bucket.moved_turns = moved ? bucket.moved_turns + 1 : 0;
}

void Chooser::report(const BucketKey& key, const Bucket& bucket, const Sparsity* sparsity) {
  BucketReport report;
  report.key = key;
  report.reason = bucket.reason;
  report.profiling = bucket.profiling;
  report.turns = bucket.turns;
  report.profiles = bucket.profiles;
  report.chosen = bucket.current;
  report.ranks = transport_.size();
  report.chunks = bucket.chunks;
  report.rates = rates(bucket);
  for (const Candidate& one : bucket.candidates)
    report.candidates.push_back({.choice = one.choice,
                                 .bytes = one.prediction.busiest_bytes(),
                                 .predicted = one.predicted,
                                 .measured = one.trials > 0 ? one.measured : 0,
                                 .expected = one.expected()});
  if (sparsity != nullptr) {
    report.density = sparsity->density();
    report.density_of_sum = sparsity->density_of_sum();
    report.skew = sparsity->skew();
    report.packed_share = sparsity->packed_share();
    for (int ranks = 2; ranks <= transport_.size(); ranks *= 2)
      report.densification.push_back(sparsity->densification(ranks));
  }
  const std::lock_guard lock(mutex_);
  reports_[key] = std::move(report);
  if (options_.deterministic && bucket.settled)
    pinned_[key] = bucket.candidates[*bucket.settled].choice;
}

std::vector<BucketReport> Chooser::reports() const {
  const std::lock_guard lock(mutex_);
  std::vector<BucketReport> result;
  for (const auto& [key, report] : reports_) result.push_back(report);
  return result;
}

std::vector<std::pair<BucketKey, Choosable>> Chooser::pinned() const {
  const std::lock_guard lock(mutex_);
  return {pinned_.begin(), pinned_.end()};
}

}  // namespace zen
