#include "codec_scenario.h"

#include <bit>
#include <stdexcept>
#include <utility>

#include "bandwidth.h"
#include "core/bits.h"
#include "core/decode_write.h"
#include "core/merge.h"
#include "core/select.h"

namespace zen::bench {

namespace {

constexpr size_t kLine = 64;
constexpr Identity kIdentity{};

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("wrong answer: " + what);
}

bool same_bytes(const Buffer& a, const Buffer& b) {
  return a.bytes == b.bytes && std::memcmp(a.data, b.data, a.bytes) == 0;
}

// Distinct cache lines of the gradient that the message writes.
size_t lines_written(const OpenMessage& message, DType dtype) {
  const auto per_line = static_cast<int>(kLine / size_of(dtype));
  size_t lines = 0;
  for (uint32_t i = 0; i < message.header.present_words; ++i)
    for (uint64_t mask = message.mask_list()[i]; mask != 0;
         mask &= ~(low_bits(static_cast<uint64_t>(per_line))
                   << std::countr_zero(mask) / per_line * per_line))
      ++lines;
  return lines;
}

size_t opened_bytes(const OpenMessage& message) {
  return message.header.value_bytes + message.header.present_words * 8 + message.presence.bytes;
}

}  // namespace

Inputs::Inputs(DType dtype, const Pattern& pattern, double density, uint64_t elements,
               uint64_t seed, const Allocate& allocate)
    : dtype(dtype),
      allocate(allocate),
      hashed(Placement::make(PlacementKind::hashed, elements, kOwners, 1)),
      whole(Placement::make(PlacementKind::whole, elements, 1, 1)) {
  const auto empty = [&] { return Gradient{allocate(elements * size_of(dtype)), dtype, elements}; };
  uint64_t nonzeros = 0;
  for (uint64_t rank = kOwners; rank-- > 0;) {
    gradients.insert(gradients.begin(), empty());
    nonzeros = make_sparse(gradients.front(), pattern, density, seed * kOwners + rank);
  }
  target = empty();
  std::memset(target.data.data, 0, target.data.bytes);
  entropy_ = entropy_bytes(gradients.front(), pattern, nonzeros);
}

std::vector<Task> Inputs::probes() {
  std::byte* data = target.data.data;
  const std::byte* from = gradients[1].data.data;
  const size_t bytes = target.data.bytes;
  return {
      {"read", "", "read", read_bytes(bytes), {[=, this] { sink_ = read_all(data, bytes); }}, {}},
      {"copy", "", "copy", copy_bytes(bytes), {[=] { copy_all(from, data, bytes); }}, {}},
      {"fill", "", "fill", fill_bytes(bytes), {[=] { fill_all(data, bytes); }}, {}}};
}

Messages::Messages(Inputs& inputs, Choice choice, std::string encoding)
    : inputs_(inputs), choice_(choice), encoding_(std::move(encoding)) {
  prepare();
}

void Messages::prepare() {
  messages_ = select_encode();
  open_all();
  std::memset(inputs_.target.data.data, 0, inputs_.target.data.bytes);
  write_all();
  require(same_bytes(inputs_.target.data, inputs_.gradients[0].data),
          encoding_ + ": select, encode, open, decode_write");
  if (choice_ == Choice::cheapest) return;
  for (const Gradient& gradient : inputs_.gradients) {
    Selection selection = select(gradient, *inputs_.whole, inputs_.whole->all(), inputs_.allocate);
    const Buffer message = encode(std::move(selection[0]), choice_, kIdentity, inputs_.allocate);
    pushed_.push_back(open(message, whole(), inputs_.dtype, kIdentity, inputs_.allocate));
  }
  const Buffer fast = merge_all(preferred_isa()), plain = merge_all(Isa::scalar);
  require(same_bytes(fast, plain), encoding_ + ": merge differs from the scalar merge");
  sum_ = open(fast, whole(), inputs_.dtype, kIdentity, inputs_.allocate);
}

size_t Messages::pushed_bytes() const {
  size_t bytes = 0;
  for (const Buffer& message : messages_) bytes += message.bytes;
  return bytes;
}

std::vector<Task> Messages::tasks() {
  size_t written = 0, merged = 0;
  for (const OpenMessage& message : opened_)
    written += opened_bytes(message) + lines_written(message, inputs_.dtype) * kLine;
  std::vector<Task> tasks{{"select_encode",
                           encoding_,
                           "read",
                           inputs_.target.data.bytes,
                           {[this] { select_encode(); }},
                           {}}};
  if (choice_ == Choice::cheapest) return tasks;
  merged = opened_bytes(sum_);
  for (const OpenMessage& message : pushed_) merged += opened_bytes(message);
  tasks.push_back(
      {"merge", encoding_, "copy", merged, {[this] { merge_all(preferred_isa()); }}, {}});
  tasks.push_back({"decode_write", encoding_, "copy", written, {[this] { write_all(); }}, {}});
  tasks.push_back({"open", encoding_, "read", pushed_bytes(), {[this] { open_all(); }}, {}});
  return tasks;
}

std::vector<Buffer> Messages::select_encode() {
  std::vector<Buffer> messages;
  for (ShardSelection& selection :
       select(inputs_.gradients[0], *inputs_.hashed, inputs_.hashed->all(), inputs_.allocate))
    messages.push_back(encode(std::move(selection), choice_, kIdentity, inputs_.allocate));
  return messages;
}

Buffer Messages::merge_all(Isa isa) {
  return encode(merge(pushed_, whole(), inputs_.dtype, kOwners, inputs_.allocate, isa), choice_,
                kIdentity, inputs_.allocate);
}

void Messages::open_all() {
  opened_.clear();
  for (int owner = 0; owner < kOwners; ++owner)
    opened_.push_back(open(messages_[static_cast<size_t>(owner)], shard(owner), inputs_.dtype,
                           kIdentity, inputs_.allocate));
}

void Messages::write_all() {
  std::vector<Shard> shards;
  for (int owner = 0; owner < kOwners; ++owner) shards.push_back(shard(owner));
  decode_write(opened_, shards, inputs_.target);
}

}  // namespace zen::bench
