#include "schemes/thread_state.h"

#include <cstring>
#include <new>

namespace zen {
namespace {

constexpr size_t kGarbageBytes = 4096;  // written behind a message: enough to upset any parser

Buffer new_buffer(size_t bytes) {
  constexpr std::align_val_t kAlign{64};
  auto* data = static_cast<std::byte*>(::operator new(std::max<size_t>(bytes, 1), kAlign));
  return {data, bytes, {data, [](std::byte* p) { ::operator delete(p, kAlign); }}};
}

uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

}  // namespace

std::string describe(const Tag& tag) {
  return "bucket " + std::to_string(tag.sequence) + ", phase " + std::to_string(tag.phase) +
         ", chunk " + std::to_string(tag.chunk) + ", layout " + std::to_string(tag.layout);
}

ThreadGroup::State::State(int size, const ThreadOptions& options)
    : size(size), options(options), members(size), wakeups_(size) {}

ThreadGroup::State::Lock ThreadGroup::State::enter(int rank) {
  Lock held = lock();
  Member& member = members[rank];
  if (member.fault == member.calls++)
    throw TransportError("rank " + std::to_string(rank) + " failed on purpose at its call " +
                         std::to_string(*member.fault));
  return held;
}

void ThreadGroup::State::die(const std::string& cause) {
  if (death_.empty()) death_ = cause;
  for (auto& wakeup : wakeups_) wakeup.notify_all();
}

void ThreadGroup::State::die_and_throw(const std::string& cause) {
  die(cause);
  throw TransportError(cause);
}

void ThreadGroup::State::post(const Operation& receiver, size_t index, int from, int to,
                              size_t capacity) {
  const Address where = address(from, to, receiver->tag);
  channels_[where].posted.push_back({receiver, index, capacity});
  match(where);
}

void ThreadGroup::State::send(const Operation& sender, int from, int to, const Buffer& message) {
  const Address where = address(from, to, sender->tag);
  members[from].traffic.bytes_out += message.bytes;
  channels_[where].sent.push_back({sender, message});
  match(where);
}

// Moves a message to its receive if both are there.
void ThreadGroup::State::match(const Address& where) {
  const auto found = channels_.find(where);
  Channel& channel = found->second;
  if (channel.posted.empty() || channel.sent.empty()) return;
  const Posted posted = std::move(channel.posted.front());
  const Sent sent = std::move(channel.sent.front());
  channel.posted.pop_front();
  channel.sent.pop_front();
  if (channel.posted.empty() && channel.sent.empty()) channels_.erase(found);
  deliver(where, posted, sent);
}

void ThreadGroup::State::deliver(const Address& where, const Posted& posted, const Sent& sent) {
  const int from = std::get<0>(where), to = std::get<1>(where);
  const size_t bytes = sent.message.bytes;
  if (bytes > posted.capacity)
    return die("rank " + std::to_string(from) + " sent " + std::to_string(bytes) +
               " bytes to rank " + std::to_string(to) + ", which had room for " +
               std::to_string(posted.capacity) + " (" + describe(posted.operation->tag) + ")");
  const size_t length = options.traits.exact_sizes ? bytes : posted.capacity;
  Buffer copy = new_buffer(length);
  std::memcpy(copy.data, sent.message.data, bytes);
  std::memset(copy.data + bytes, 0xa5, std::min(length - bytes, kGarbageBytes));
  ThreadOperation& receiver = *posted.operation;
  receiver.received[posted.index] = std::move(copy);
  receiver.arrival = std::max(receiver.arrival, std::chrono::steady_clock::now() + delay(where));
  receiver.settle(from);
  sent.operation->settle(to);
  members[to].traffic.bytes_in += bytes;
  wakeups_[from].notify_all();
  wakeups_[to].notify_all();
}

// Seeded, and independent of the threads' timing, so that a failing schedule can be run again.
std::chrono::microseconds ThreadGroup::State::delay(const Address& where) const {
  const auto& [from, to, layout, sequence, phase, chunk] = where;
  const uint64_t who = static_cast<uint64_t>(from) << 32 | static_cast<uint32_t>(to);
  const uint64_t what = uint64_t{sequence} << 16 | uint64_t{phase} << 8 | chunk;
  const uint64_t hash = mix(mix(mix(options.seed + 1) ^ who) ^ (what ^ uint64_t{layout} << 48));
  return std::chrono::microseconds(hash % (static_cast<uint64_t>(options.max_delay.count()) + 1));
}

ThreadGroup::State::Meeting ThreadGroup::State::meet(int rank, const std::string& call) {
  check_alive();
  const uint64_t number = members[rank].meetings++;
  const auto [found, is_first] = meetings_.try_emplace(number, std::make_shared<ThreadMeeting>());
  const Meeting meeting = found->second;
  if (is_first) {
    meeting->number = number;
    meeting->first = rank;
    meeting->call = call;
  }
  if (meeting->call != call)
    die_and_throw("collective call " + std::to_string(number) + ": rank " + std::to_string(rank) +
                  " called " + call + ", rank " + std::to_string(meeting->first) + " called " +
                  meeting->call);
  if (++meeting->arrived == size) {
    meetings_.erase(found);
    for (auto& wakeup : wakeups_) wakeup.notify_all();
  }
  return meeting;
}

void ThreadGroup::State::sleep_until_all_meet(Lock& lock, int rank, const Meeting& meeting) {
  sleep_until(
      lock, rank, [&] { return meeting->arrived == size; },
      [&] { return absent(meeting->number) + " to call " + meeting->call; });
}

std::string ThreadGroup::State::absent(uint64_t meeting) const {
  std::string ranks;
  for (int r = 0; r < size; ++r)
    if (members[r].meetings <= meeting) ranks += (ranks.empty() ? "" : ", ") + std::to_string(r);
  return "rank " + ranks;
}

void ThreadGroup::State::sleep_until_delivered(Lock& lock, int rank, const Operation& operation) {
  sleep_until(
      lock, rank, [&] { return operation->waiting_for.empty(); },
      [&] {
        return "rank " + std::to_string(operation->waiting_for.front()) + " (" +
               describe(operation->tag) + ")";
      });
  while (std::chrono::steady_clock::now() < operation->arrival)
    wakeups_[rank].wait_until(lock, operation->arrival);
}

}  // namespace zen
