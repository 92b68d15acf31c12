// Synchronises tensors of one process group, one after the other, on a thread of its own.
//
// The thread is the only one that issues collectives on the group, in the order of submit(), which
// must be the same on all ranks. submit() never waits for the network.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "schemes/chooser.h"
#include "schemes/pipeline.h"
#include "schemes/planner.h"
#include "schemes/watch.h"
#include "torch/dgc_compression.h"
#include "torch/job_queue.h"
#include "torch/lanes.h"
#include "torch/statistics.h"
#include "torch/store_board.h"

namespace zen {

constexpr const char* kAuto = "auto";  // the scheme that is none of its own: see schemes/chooser.h

struct Options {
  std::string scheme = "balanced_parallelism";
  int chunks = 0;                        // 0: chosen from the size of the gradient
  std::optional<bool> pack_values = {};  // none: auto decides, the other schemes do not
  std::string wire_dtype = "";           // "bfloat16"; empty: the gradient's
  std::string transport = "";            // "capacity" or "exact"; empty: the faster one
  // Of waiting for peers on a GPU; gloo's operations have that of the group.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  std::optional<DgcOptions> dgc;
  ProcessGroup tensor_parallel;  // of DGC: ranks that hold parts of one model; may be null
  int profile_iterations = ChooserOptions{}.profile_iterations;  // these are for auto
  int reprofile_every = ChooserOptions{}.reprofile_every;
  bool deterministic = false;
  ProcessGroup node;  // the ranks of this node, if they add up first; may be null
  int rank = -1;      // this rank's name in messages; -1: its rank in the group
  Store store;        // of all ranks, for what they tell; null: that of the group
};

// Throws InvalidArgument that says what to do if the scheme is not known or an option has no effect
// on it.
void check_options(const Options& options);

// Told once how a request ended, on the engine's thread. If it is done, the current stream of the
// tensor's device is the one whose work has written it.
class Completion {
 public:
  virtual ~Completion() = default;
  virtual void done() noexcept = 0;
  virtual void failed(const std::string& message) noexcept = 0;
};

struct Request {
  at::Tensor tensor;  // overwritten with the result
  Reduce reduce = Reduce::mean;
  std::string name;   // in messages: "bucket 3"
  int bucket = 0;     // in statistics
  bool last = false;  // ends an iteration
  bool always_agree = false;
  std::optional<DgcRequest> dgc;  // REQUIRES: set iff the engine has DGC
  std::unique_ptr<Completion> completion;
};

// Throws InvalidArgument that says what to do if zensync cannot reduce this tensor.
void check_supported(const at::Tensor& tensor, Reduce reduce);

class Engine {
 public:
  // Collective over the group, which must be used by nobody else. With `options.node` the group is
  // that of the ranks with the same place in their nodes, and it is collective over all ranks.
  // Throws InvalidArgument for impossible options and TransportError if a peer does not answer.
  Engine(ProcessGroup group, const Options& options);
  ~Engine();

  // Throws InvalidArgument if the engine is closed.
  void submit(Request request);

  // Ends the thread and lets go of the group. If requests are unfinished they fail, here and on the
  // peers. May be called more than once. REQUIRES: !on_own_thread().
  void close();

  // Is the caller one of this engine's completions?
  bool on_own_thread() const;

  int rank() const { return rank_; }
  const std::string& scheme() const { return scheme_; }
  DgcCompression* dgc() { return dgc_.get(); }
  Chooser* chooser() { return chooser_.get(); }  // of scheme auto, otherwise null
  Mode mode() const { return mode_; }
  Statistics::Snapshot statistics() const { return statistics_.snapshot(); }

 private:
  class Job;

  void run();
  int nodes() const { return transport_->size(); }
  int ranks_per_node() const { return transport_->node() ? transport_->node()->size() : 1; }
  int ranks() const { return nodes() * ranks_per_node(); }
  std::optional<std::unique_ptr<Job>> next_job(bool busy);
  void hold(std::unique_ptr<Job> job);

  std::string scheme_;
  Choosable fixed_;  // what is used for every gradient, unless there is a chooser
  Mode mode_;
  int rank_;
  std::unique_ptr<Lanes> transport_;
  std::unique_ptr<Planner> planner_;
  std::unique_ptr<DgcCompression> dgc_;
  std::unique_ptr<Watch> watch_;  // of the transport; null if the ranks have no way to tell
  uint64_t iteration_ = 1;        // of the thread: whose buckets are being started
  std::unique_ptr<Chooser> chooser_;
  Statistics statistics_;
  JobQueue<std::unique_ptr<Job>> queue_;
  std::deque<std::unique_ptr<Job>> held_, released_;  // of the thread: see next_job()
  std::atomic<int> unfinished_{0};
  std::mutex closing_;
  std::thread thread_;  // last: starts when everything above exists
};

}  // namespace zen
