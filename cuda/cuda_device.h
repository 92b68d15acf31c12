// A Device whose gradients, messages and scratch are memory of one GPU, and whose work goes to one
// stream.
//
// 1. Messages are the bytes that CpuDevice makes from the same input, except for the payload of a
//    NaN that a sum produces: a GPU has one NaN.
// 2. encode() never waits for the stream, the other steps once each: the counts and headers that a
//    step needs on the host come back together. There is one wait more to pack values, whose bytes
//    nobody knows before, to select single elements, because Algorithm 1 needs memory for as many
//    non-zeros as there are, and when the first packed message is met.
// 3. Gradients and messages are read and written in stream order. Whoever else works on them makes
//    the stream wait, or waits for it.
// 4. A Selection holds a SlotTable in `masks` and, on the host, the count of block elements in
//    `presence`: only this class's encode() reads it.
// Used by one thread at a time; the current CUDA device of that thread is the stream's.
#pragma once

#include <span>
#include <vector>

#include "core/device.h"
#include "cuda/element_lists.h"
#include "cuda/open.h"
#include "cuda/packing_tables.h"
#include "cuda/portable.h"
#include "cuda/slot_table.h"
#include "cuda/step.h"

namespace zen::cuda {

struct Selecting;

class CudaDevice final : public Device {
 public:
  // `device_memory` is ordered by `stream` (see stream_memory() in memory.h), `pinned_memory` is
  // page-locked host memory; both should be cached, since every step allocates.
  // `wait` null: cudaStreamSynchronize(), which knows no deadline.
  CudaDevice(cudaStream_t stream, Allocate device_memory, Allocate pinned_memory, Wait wait = {});
  ~CudaDevice() override;  // waits for the stream

  Buffer allocate(size_t bytes) override;
  // Values of DGC are found in two kernels more, and their samples come back with the counts.
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

 private:
  struct Input;
  struct Opening;
  struct Draft;
  struct Indices;
  struct Drawn;

  Selecting rooms(Step& step, const Placement& placement, WordRange range, DType dtype,
                  uint64_t* totals, bool takes = false);
  Selection gather(Step& step, const Gradient& gradient, Selecting selecting);
  Selection dgc_select(const Gradient& gradient, const Placement& placement, WordRange range);
  Drawn draw(Step& step, const DgcSampler& sampler, const Gradient& gradient, const DgcPass& pass);
  const uint64_t* pass_over(Step& step, const Gradient& gradient, const Shard& words,
                            uint64_t* totals);
  Indices list_nonzeros(const Gradient& gradient, WordRange range);
  Selection select_elements(const Gradient& gradient, const Placement& placement, WordRange range);
  ShardMap map_of(const Shard& shard);
  ShardSelection room_for(const Shard& shard, DType dtype);
  std::vector<Draft> drafts_of(Step& step, const Selection& selection,
                               const EncodeOptions& options);
  void measure(Step& step, std::vector<Draft>& drafts);
  std::vector<Draft> smallest(std::vector<Draft> drafts) const;
  const CodeTables* tables();
  void narrow(Step& step, Selection& selection, DType dtype);
  Opening open(Step& step, std::span<const Input> inputs, uint64_t* results);
  bool accepts(std::span<const Input> inputs, std::span<const uint64_t> bad);
  std::vector<Header> read_headers(std::span<const Buffer> messages);
  void copy(std::byte* to, const std::byte* from, size_t bytes);

  cudaStream_t stream_;
  Allocate device_memory_, pinned_memory_;
  Wait wait_;
  ElementLists lists_;
  Buffer tables_;             // CodeTables, on the device
  bool unpacks_ = false;      // whether messages get room for values that were packed
  std::vector<Buffer> held_;  // host memory that queued copies still use
};

}  // namespace zen::cuda
