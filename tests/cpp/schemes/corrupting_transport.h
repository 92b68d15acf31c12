// A transport that damages one message on its way in.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "schemes/transport.h"

namespace zen::scheme_test {

class CorruptingTransport final : public Transport {
 public:
  // Inverts byte `byte` of the message number `message`, counted from 0 over all that arrive.
  CorruptingTransport(Transport& inner, uint64_t message, size_t byte)
      : inner_(inner), victim_(message), byte_(byte) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Traits traits() const override { return inner_.traits(); }
  Ticket expect(const Tag& tag, std::span<const Expected> from) override {
    return inner_.expect(tag, from);
  }
  void send(Ticket ticket, std::span<const Outgoing> messages) override {
    inner_.send(ticket, messages);
  }
  std::vector<Buffer> wait(Ticket ticket) override {
    std::vector<Buffer> messages = inner_.wait(ticket);
    for (Buffer& message : messages)
      if (arrived_++ == victim_) message.data[byte_] ^= std::byte{0xff};
    return messages;
  }
  void all_reduce(const Buffer& data, DType dtype, Reduce reduce) override {
    inner_.all_reduce(data, dtype, reduce);
  }
  void agree(uint64_t fingerprint, const std::string& description) override {
    inner_.agree(fingerprint, description);
  }
  void fail() noexcept override { inner_.fail(); }
  Traffic traffic() const override { return inner_.traffic(); }

  uint64_t arrived() const { return arrived_; }

 private:
  Transport& inner_;
  uint64_t victim_;
  size_t byte_;
  uint64_t arrived_ = 0;
};

}  // namespace zen::scheme_test
