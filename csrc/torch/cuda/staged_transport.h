// Messages in a GPU's memory over a transport that moves only the host's, as gloo's point-to-point
// operations do: they go through page-locked memory, copied on the GPU's stream. Torch-free, so
// that the simulator of tests/cuda can run it.
//
// Each send() waits for the stream once, because the network reads what the stream writes. wait()
// leaves its copies queued: a received message is used in stream order.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "cuda/portable.h"
#include "schemes/transport.h"

namespace zen {

struct Staging {
  cudaStream_t stream;
  Allocate device_memory;        // in the stream's order
  Allocate pinned_memory;        // of the host, as are the messages of the transport below
  std::function<void()> settle;  // waits for the stream
};

class StagedTransport final : public Transport {
 public:
  // `below` outlives this.
  StagedTransport(Transport& below, Staging staging)
      : below_(below), staging_(std::move(staging)) {}

  int rank() const override { return below_.rank(); }
  int size() const override { return below_.size(); }
  // A message's length is known when it has come, whatever was posted for it.
  Traits traits() const override;
  Ticket expect(const Tag& tag, std::span<const Expected> from) override;
  void send(Ticket ticket, std::span<const Outgoing> messages) override;
  std::vector<Buffer> wait(Ticket ticket) override;
  void all_reduce(const Buffer& data, DType dtype, Reduce reduce) override;
  void agree(uint64_t fingerprint, const std::string& description) override;
  void fail() noexcept override { below_.fail(); }
  Traffic traffic() const override { return below_.traffic(); }

 private:
  Buffer to_host(const Buffer& message) const;           // queued
  void to_device(const Buffer& from, const Buffer& to);  // queued; `from` is held until settle()
  void settle();

  Transport& below_;
  Staging staging_;
  std::vector<Buffer> held_;  // host memory that queued copies still read
};

}  // namespace zen
