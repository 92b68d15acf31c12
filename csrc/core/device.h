// What a scheme may ask of the processor that holds the gradient. CpuDevice is the reference; a
// device with its own memory implements the same steps on its own stream.
//
// A Device is used by one thread at a time, except allocate() and the release of what it returned.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/codec.h"
#include "core/dtype.h"
#include "core/gradient.h"
#include "core/message.h"
#include "core/placement.h"
#include "core/selection.h"

namespace zen {

class DgcSampler;

// One input of merge(). Partial sums travel as float32, so inputs may differ in dtype.
struct Incoming {
  Buffer message;
  Identity expected;
  DType dtype = DType::f32;
};

// One input of decode_write(). A float32 gradient also takes narrower values.
struct Update {
  Buffer message;
  Identity expected;
  Shard shard;
  std::optional<DType> dtype = {};  // of the values; none: the gradient's
};

// The pieces of one message that join() puts together (fragment.h).
struct Pieces {
  std::vector<Buffer> pieces;  // in order
  Identity expected;
  int owner = 0;
  size_t max_bytes = 0;  // of the whole
};

struct Merged {
  Buffer message;  // ready to send: the element-wise union of what the ranks listed, zeros included
  uint64_t count = 0;  // listed elements
};

class Device {
 public:
  virtual ~Device() = default;

  virtual Buffer allocate(size_t bytes) = 0;

  // One ordered pass over the words in `range`: lists every element with x != 0 (NaN included), and
  // rewrites -0.0 to +0.0 in the gradient; or lists what gradient.dgc sends and leaves zeros. The
  // result has one entry per owner. Ranges of one gradient come in ascending order.
  virtual Selection select(const Gradient& gradient, const Placement& placement,
                           WordRange range) = 0;

  // sampler.observe() of the whole gradient, which is this device's, as is the memory of the pass.
  virtual void sample(DgcSampler& sampler, const Gradient& gradient, const DgcPass& pass) = 0;

  // One message per owner, in owner order.
  virtual std::vector<Buffer> encode(Selection&& selection, const EncodeOptions& options,
                                     const Identity& identity) = 0;

  // Adds the messages in float32 and in the order given (by rank, so that every run and every
  // device rounds alike); divides by `divisor`; rounds once to `dtype`. The result carries
  // `outgoing`. Throws MalformedMessage.
  virtual Merged merge(std::span<const Incoming> messages, const Shard& shard, DType dtype,
                       float divisor, const EncodeOptions& options, const Identity& outgoing) = 0;

  // Writes exactly the listed elements of all messages, whose shards have no word in common, into
  // the gradient and returns how many. Throws MalformedMessage before anything is written. All
  // messages of a chunk in one call are faster than one after the other.
  virtual uint64_t decode_write(std::span<const Update> updates, const Gradient& gradient) = 0;

  // dense_sum() of whole arrays, which lie in this device's memory.
  virtual void sum(std::span<const Buffer> arrays, DType dtype, float divisor,
                   const Buffer& result) = 0;

  // Bit for bit. REQUIRES: as many bytes; no overlap.
  virtual void copy(const Buffer& from, const Buffer& to) = 0;

  // The messages that the buffers begin with, each of its exact length: a transport may deliver
  // buffers of the posted capacity. Throws MalformedMessage as message_bytes() does.
  virtual std::vector<Buffer> trim(std::vector<Buffer> received) = 0;

  // A message cut into pieces of equal size, and several put together again: fragment.h. join()
  // throws MalformedMessage. REQUIRES: pieces > 0.
  virtual std::vector<Buffer> cut(const Buffer& message, int pieces) = 0;
  virtual std::vector<Buffer> join(std::span<const Pieces> messages) = 0;
};

}  // namespace zen
