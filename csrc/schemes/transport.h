// How messages travel between the ranks of one group. One sparse all-to-all-v covers push, pull,
// recursive doubling and rings.
//
// Use, for every phase and chunk of an exchange, in the same order on all ranks:
//   Ticket t = expect(tag, from whom, at most how much);  send(t, messages);  ... wait(t)
// A Transport is used by one thread at a time, except fail().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/dtype.h"

namespace zen {

struct Outgoing {
  int peer = 0;
  Buffer message;  // handed over: immutable from here; never empty
};

struct Expected {
  int peer = 0;
  size_t capacity = 0;  // upper bound of the message's length
  bool bare = false;    // no header: exactly `capacity` bytes
};

struct Tag {
  uint32_t layout = 0;
  uint32_t sequence = 0;
  uint8_t phase = 0;
  uint8_t chunk = 0;
};

using Ticket = uint64_t;

enum class Reduce : uint8_t { sum, mean };

struct Traits {
  bool ordered =
      false;  // every call is a collective: all ranks must make the same calls in the same order
  bool exact_sizes =
      false;  // received buffers have the message's own length, otherwise the posted capacity
  int max_chunks = 1;  // more chunks than this gain nothing here
};

// Bytes of messages (payload and header) since the transport was made. all_reduce() counts what a
// ring moves, whatever the backend really does.
struct Traffic {
  uint64_t bytes_out = 0;
  uint64_t bytes_in = 0;
};

// What each rank of a ring sends, and receives, to all-reduce `bytes` bytes.
constexpr uint64_t ring_all_reduce_bytes(uint64_t bytes, int ranks) {
  return 2 * bytes * static_cast<uint64_t>(ranks - 1) / static_cast<uint64_t>(ranks);
}

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Traits traits() const = 0;

  // Announces the messages this rank will receive under `tag`, at most one per peer and never from
  // itself. Does not block. With an ordered transport every rank calls expect and send, with empty
  // lists if need be.
  virtual Ticket expect(const Tag& tag, std::span<const Expected> from) = 0;

  // Sends this rank's messages of the ticket, at most one per peer and never to itself; called
  // exactly once per ticket. The bytes stay alive until wait() returns.
  virtual void send(Ticket ticket, std::span<const Outgoing> messages) = 0;

  // The messages in the order of expect(); own sends are finished too. Throws TransportError naming
  // the peer if one is dead, late or sent more than its capacity. Called exactly once per ticket.
  virtual std::vector<Buffer> wait(Ticket ticket) = 0;

  // The backend's own dense all-reduce, in place. Collective.
  virtual void all_reduce(const Buffer& data, DType dtype, Reduce reduce) = 0;

  // Collective. Returns if every rank passes the same fingerprint; otherwise throws TransportError
  // on every rank, listing each rank's description. At most kDescriptionBytes of the description
  // travel.
  static constexpr size_t kDescriptionBytes = 256;
  virtual void agree(uint64_t fingerprint, const std::string& description) = 0;

  // This group is dead: wakes every peer that waits for it. May be called from any thread, more
  // than once.
  virtual void fail() noexcept = 0;

  virtual Traffic traffic() const = 0;
};

}  // namespace zen
