// The gradients and messages that codec_benchmark works on, and what is done to them. Answers are
// checked before anything is timed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/codec.h"
#include "core/cpu_features.h"
#include "core/gradient.h"
#include "core/placement.h"
#include "synthetic.h"
#include "timing.h"

namespace zen::bench {

constexpr int kOwners = 4;  // and ranks

// Gradients of all ranks with one dtype, pattern and density.
class Inputs {
 public:
  Inputs(DType dtype, const Pattern& pattern, double density, uint64_t elements, uint64_t seed,
         const Allocate& allocate);

  // read, copy and fill of a gradient: the bandwidths that everything else is compared with.
  std::vector<Task> probes();

  double entropy() const { return entropy_; }  // bytes of positions and values of gradient 0

  const DType dtype;
  const Allocate allocate;
  const std::shared_ptr<const Placement> hashed, whole;
  std::vector<Gradient> gradients;
  Gradient target;

 private:
  double entropy_ = 0;
  volatile uint64_t sink_ = 0;
};

// Messages of those gradients in one encoding.
class Messages {
 public:
  Messages(Inputs& inputs, Choice choice, std::string encoding);

  // select_encode, merge, decode_write, open; for a choice of several only the first.
  std::vector<Task> tasks();

  size_t pushed_bytes() const;  // of gradient 0 to all owners

 private:
  Shard whole() const { return inputs_.whole->shard(0, inputs_.whole->all()); }
  Shard shard(int owner) const { return inputs_.hashed->shard(owner, inputs_.hashed->all()); }
  std::vector<Buffer> select_encode();
  Buffer merge_all(Isa isa);
  void open_all();
  void write_all();
  void prepare();

  Inputs& inputs_;
  Choice choice_;
  std::string encoding_;
  std::vector<Buffer> messages_;     // of gradient 0, by owner
  std::vector<OpenMessage> opened_;  // the same
  std::vector<OpenMessage> pushed_;  // all elements of a gradient, by rank
  OpenMessage sum_;                  // of pushed_
};

}  // namespace zen::bench
