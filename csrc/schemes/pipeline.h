// Buckets in flight over one transport: the order in which exchanges are prepared, posted and
// finished, and what happens when one of them fails.
//
// 1. Buckets are posted and finished in the order in which they were started.
// 2. Over an ordered transport a bucket is posted only when the one before it is finished.
// 3. A layout that this group has not used yet is agreed on first, with nothing in flight: a
//    message that is longer than its receiver expects would kill the receiving process.
// 4. A bucket whose ranks consult one another does so, and is finished, with nothing else in
// flight.
// 5. The first failure ends it: the peers are woken, every bucket in flight and every later one
//    fails with a message that tells what happened first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

#include "schemes/exchange.h"
#include "schemes/transport.h"
#include "schemes/watch.h"

namespace zen {

// What every rank must mean alike by a bucket.
struct Layout {
  uint64_t fingerprint = 0;
  std::string description;
  bool always_agree = false;  // even if the layout is known: for callers that may be out of step
};

// One bucket, as its owner sees it. Used on the pipeline's thread only.
class Task {
 public:
  virtual ~Task() = default;

  virtual std::string name() const = 0;        // "bucket 3"
  virtual std::string_view stage() const = 0;  // the latest stage that its exchange entered
  virtual std::string where() const { return name(); }  // "bucket 3 of iteration 17"

  // Whether the ranks must talk before they know how to synchronise the bucket, or whether it must
  // be known how the one before ended. With nothing in flight all ranks must say the same.
  virtual bool consults() { return false; }

  // That talk, under a number of its own, and what it is about. Called before layout() if
  // consults() with nothing in flight; the bucket then has the transport for itself until it is
  // finished.
  virtual Layout subject() { return {}; }
  virtual void consult(uint32_t /*sequence*/) {}

  virtual Layout layout() = 0;
  virtual std::unique_ptr<Exchange> exchange(uint32_t sequence) = 0;

  // Exactly one of them is called, once. `traffic` is this bucket's alone.
  virtual void done(const Report& report, const Traffic& traffic) noexcept = 0;
  virtual void failed(const std::string& message) noexcept = 0;
};

class Pipeline {
 public:
  // Tells `watch`, which may be null, where it is, and asks it for the cause of a failure.
  explicit Pipeline(Transport& transport, Watch* watch = nullptr)
      : Pipeline(transport, nullptr, transport.rank(), watch) {}

  // With several ranks per node (node_exchange.h): `transport` connects this rank with those of
  // other nodes, `node` with those of its own. `rank` is the name of this rank in messages. Traffic
  // is that between nodes.
  Pipeline(Transport& transport, Transport* node, int rank, Watch* watch = nullptr)
      : transport_(transport), node_(node), rank_(rank), watch_(watch) {}

  // Prepares the bucket and posts it when its turn has come. May finish earlier buckets.
  void start(std::unique_ptr<Task> owned);

  // Waits for the bucket that was started first. REQUIRES: in_flight() > 0.
  void finish_oldest();

  size_t in_flight() const { return flight_.size(); }

 private:
  struct Running {
    std::unique_ptr<Task> task;
    std::unique_ptr<Exchange> exchange;
    Traffic traffic;
    bool posted = false;
  };

  bool consulted(Task& task);
  bool agreed(Task& task, uint32_t sequence);
  bool ordered() const;
  void fail() noexcept;
  void post(Running& running);
  bool failed_already(Task& task) const;
  bool attempt(Task& task, std::string_view stage, const std::function<void()>& step);
  void die(Task& culprit, std::string_view stage, const std::exception& error);
  std::string cause_of(const std::exception& error) const;
  std::string not_done(const Task& task) const;

  Transport& transport_;
  Transport* node_;
  int rank_;
  Watch* watch_;
  std::deque<Running> flight_;
  std::unordered_set<uint64_t> known_;  // fingerprints that all ranks agreed on
  uint32_t sequence_ = 0;
  std::string failure_;  // the first one; empty while all is well
};

}  // namespace zen
