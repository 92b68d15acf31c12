// The reference Device: the calling thread's processor and ordinary memory.
#pragma once

#include <span>
#include <vector>

#include "core/buffer_pool.h"
#include "core/cpu_features.h"
#include "core/device.h"

namespace zen {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(Isa isa = preferred_isa());

  Buffer allocate(size_t bytes) override;
  Selection select(const Gradient& gradient, const Placement& placement, WordRange range) override;
  void sample(DgcSampler& sampler, const Gradient& gradient, const DgcPass& pass) override;
  std::vector<Buffer> encode(Selection&& selection, const EncodeOptions& options,
                             const Identity& identity) override;
  Merged merge(std::span<const Incoming> messages, const Shard& shard, DType dtype, float divisor,
               const EncodeOptions& options, const Identity& outgoing) override;
  uint64_t decode_write(std::span<const Update> updates, const Gradient& gradient) override;
  void sum(std::span<const Buffer> arrays, DType dtype, float divisor,
           const Buffer& result) override;
  void copy(const Buffer& from, const Buffer& to) override;
  std::vector<Buffer> trim(std::vector<Buffer> received) override;
  std::vector<Buffer> cut(const Buffer& message, int pieces) override;
  std::vector<Buffer> join(std::span<const Pieces> messages) override;

  // Memory that messages and scratch come from.
  BufferPool& pool() { return pool_; }

 private:
  BufferPool pool_;
  Allocate allocate_;
  Isa isa_;
};

}  // namespace zen
