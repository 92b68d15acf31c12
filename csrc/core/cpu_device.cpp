#include "core/cpu_device.h"

#include <cstring>
#include <utility>

#include "core/decode_write.h"
#include "core/dense_sum.h"
#include "core/dgc_sample.h"
#include "core/fragment.h"
#include "core/merge.h"
#include "core/narrow.h"
#include "core/select.h"

namespace zen {

CpuDevice::CpuDevice(Isa isa) : allocate_(pool_.allocator()), isa_(isa) {}

Buffer CpuDevice::allocate(size_t bytes) {
  return pool_.get(bytes);
}

Selection CpuDevice::select(const Gradient& gradient, const Placement& placement, WordRange range) {
  if (gradient.dgc != nullptr)
    return dgc_select(gradient, placement, range, *gradient.dgc, allocate_, isa_);
  return zen::select(gradient, placement, range, allocate_, isa_);
}

void CpuDevice::sample(DgcSampler& sampler, const Gradient& gradient, const DgcPass& pass) {
  sampler.observe(gradient, pass, 0, gradient.numel);
}

std::vector<Buffer> CpuDevice::encode(Selection&& selection, const EncodeOptions& options,
                                      const Identity& identity) {
  std::vector<Buffer> messages;
  messages.reserve(selection.size());
  for (ShardSelection& shard : selection)
    messages.push_back(zen::encode(std::move(shard), options, identity, allocate_));
  return messages;
}

Merged CpuDevice::merge(std::span<const Incoming> messages, const Shard& shard, DType dtype,
                        float divisor, const EncodeOptions& options, const Identity& outgoing) {
  std::vector<OpenMessage> opened;
  opened.reserve(messages.size());
  for (const Incoming& incoming : messages)
    opened.push_back(open(incoming.message, shard, incoming.dtype, incoming.expected, allocate_));
  ShardSelection sum = zen::merge(opened, shard, dtype, divisor, allocate_, isa_);
  const uint64_t count = sum.count;
  return {zen::encode(std::move(sum), options, outgoing, allocate_), count};
}

uint64_t CpuDevice::decode_write(std::span<const Update> updates, const Gradient& gradient) {
  std::vector<OpenMessage> opened;
  std::vector<Shard> shards;
  uint64_t listed = 0;
  for (const Update& update : updates) {
    const DType dtype = update.dtype.value_or(gradient.dtype);
    opened.push_back(open(update.message, update.shard, dtype, update.expected, allocate_));
    if (dtype != gradient.dtype) widen_values(opened.back(), allocate_);
    shards.push_back(update.shard);
    listed += opened.back().header.count;
  }
  zen::decode_write(opened, shards, gradient, isa_);
  return listed;
}

void CpuDevice::sum(std::span<const Buffer> arrays, DType dtype, float divisor,
                    const Buffer& result) {
  dense_sum(arrays, dtype, divisor, result);
}

void CpuDevice::copy(const Buffer& from, const Buffer& to) {
  std::memcpy(to.data, from.data, from.bytes);
}

std::vector<Buffer> CpuDevice::trim(std::vector<Buffer> received) {
  for (Buffer& message : received) message = message.slice(0, message_bytes(message.span()));
  return received;
}

std::vector<Buffer> CpuDevice::cut(const Buffer& message, int pieces) {
  return zen::cut(message, pieces, allocate_);
}

std::vector<Buffer> CpuDevice::join(std::span<const Pieces> messages) {
  std::vector<Buffer> wholes;
  for (const auto& [pieces, expected, owner, max_bytes] : messages)
    wholes.push_back(zen::join(pieces, expected, owner, max_bytes, allocate_));
  return wholes;
}

}  // namespace zen
