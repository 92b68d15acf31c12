// The engine as Python sees it: futures that a DDP hook may return, and a destructor that may run
// anywhere in the life of an interpreter.
#pragma once

#include <sys/types.h>

#include <torch/csrc/jit/python/pybind_utils.h>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "torch/engine.h"

namespace zen {

class PythonEngine {
 public:
  using Future = std::shared_ptr<torch::jit::PythonFutureWrapper>;

  // REQUIRES, here and below unless told otherwise: the GIL is held.
  PythonEngine(ProcessGroup group, const Options& options);
  ~PythonEngine();

  // The mean of the bucket over the group, in place. What is wrong with it comes out of the future,
  // because the peers are waiting and must be told too.
  Future hook(c10d::GradBucket& bucket, std::optional<DgcRequest> dgc);

  // In place, for any shape and strides. Throws InvalidArgument if the tensor is not supported.
  // In a forked child it throws, as hook() does: what it submitted would wait for ever.
  Future all_reduce(const at::Tensor& tensor, Reduce reduce);

  // What goes on between iterations. Null if there is no DGC.
  DgcCompression* dgc() { return engine_->dgc(); }

  // Null unless the scheme is auto and there are several ranks.
  Chooser* chooser() { return engine_->chooser(); }

  void close();
  bool on_own_thread() const { return engine_->on_own_thread(); }
  Statistics::Snapshot statistics() const { return engine_->statistics(); }
  int rank() const { return engine_->rank(); }
  const std::string& scheme() const { return engine_->scheme(); }
  std::string transport() const { return name_of(engine_->mode()); }

 private:
  bool forked() const;
  void refuse_if_forked() const;

  std::unique_ptr<Engine> engine_;
  pid_t process_;
};

}  // namespace zen
