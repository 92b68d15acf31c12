#include "torch/cuda/staged_transport.h"

#include <map>

#include "core/message.h"
#include "cuda/error.h"

namespace zen {

Traits StagedTransport::traits() const {
  Traits traits = below_.traits();
  traits.exact_sizes = true;
  return traits;
}

Ticket StagedTransport::expect(const Tag& tag, std::span<const Expected> from) {
  return below_.expect(tag, from);
}

// A message that goes to several ranks is copied once.
void StagedTransport::send(Ticket ticket, std::span<const Outgoing> messages) {
  std::map<const std::byte*, Buffer> copies;
  std::vector<Outgoing> staged;
  for (const auto& [peer, message] : messages) {
    Buffer& copy = copies[message.data];
    if (copy.bytes != message.bytes) copy = to_host(message);
    staged.push_back({peer, copy});
  }
  if (!staged.empty()) settle();
  below_.send(ticket, staged);
}

std::vector<Buffer> StagedTransport::wait(Ticket ticket) {
  const bool exact = below_.traits().exact_sizes;
  std::vector<Buffer> messages;
  for (const Buffer& received : below_.wait(ticket)) {
    const size_t bytes = exact ? received.bytes : message_bytes(received.span());
    messages.push_back(staging_.device_memory(bytes));
    to_device(received.slice(0, bytes), messages.back());
  }
  return messages;
}

void StagedTransport::all_reduce(const Buffer& data, DType dtype, Reduce reduce) {
  const Buffer copy = to_host(data);
  settle();
  below_.all_reduce(copy, dtype, reduce);
  to_device(copy, data);
}

void StagedTransport::agree(uint64_t fingerprint, const std::string& description) {
  below_.agree(fingerprint, description);
}

Buffer StagedTransport::to_host(const Buffer& message) const {
  Buffer copy = staging_.pinned_memory(message.bytes);
  cuda::check(cudaMemcpyAsync(copy.data, message.data, message.bytes, cudaMemcpyDeviceToHost,
                              staging_.stream),
              "copying a message to the host");
  return copy;
}

void StagedTransport::to_device(const Buffer& from, const Buffer& to) {
  cuda::check(
      cudaMemcpyAsync(to.data, from.data, from.bytes, cudaMemcpyHostToDevice, staging_.stream),
      "copying a message to the device");
  held_.push_back(from);
}

void StagedTransport::settle() {
  staging_.settle();
  held_.clear();
}

}  // namespace zen
