#include "schemes/findings.h"

#include <algorithm>
#include <cstring>

#include "core/format.h"

namespace zen {

namespace {

// The body of a message, behind a header that calls it dense values of float32. Fields are written
// one after the other, so that no padding travels; counts as float32, which is exact enough.
//
//   body := trial listed listed_in_sum numel threshold packed_share sampled_values
//           bin{kBins} blocks block{sample_room}
class Writer {
 public:
  explicit Writer(std::byte* out) : out_(out) {}

  template <class T>
  void put(const T& value) {
    std::memcpy(out_, &value, sizeof value);
    out_ += sizeof value;
  }
  std::byte* end() const { return out_; }

 private:
  std::byte* out_;
};

class Reader {
 public:
  explicit Reader(const std::byte* in) : in_(in) {}

  template <class T>
  void get(T& value) {
    std::memcpy(&value, in_, sizeof value);
    in_ += sizeof value;
  }

 private:
  const std::byte* in_;
};

constexpr size_t kFixedBytes = (4 + kStages + 2 + 1) * 8 + 4 * 8 + kBins * 4 * sizeof(float);
constexpr size_t kBlockBytes = sizeof(uint32_t) + kBlockWords * 8;

size_t body_bytes(size_t sample_room) {
  return kFixedBytes + sample_room * kBlockBytes;
}

void write_counts(Writer& writer, const Counts& counts) {
  for (const double count : {counts.elements, counts.words, counts.full_words, counts.blocks})
    writer.put(static_cast<float>(count));
}

Counts read_counts(Reader& reader) {
  std::array<float, 4> counts;
  reader.get(counts);
  return {counts[0], counts[1], counts[2], counts[3]};
}

void write(const Findings& findings, size_t sample_room, std::byte* out) {
  Writer writer(out);
  const Trial& trial = findings.trial;
  writer.put(trial.bucket), writer.put(trial.candidate);
  writer.put(trial.seconds), writer.put(trial.round_seconds), writer.put(trial.stages);
  writer.put(findings.listed), writer.put(findings.listed_in_sum);
  const Look& look = findings.look;
  writer.put(look.numel), writer.put(look.threshold);
  writer.put(look.packed_share), writer.put(look.sampled_values);
  for (const Counts& bin : look.bins) write_counts(writer, bin);
  const uint64_t blocks = std::min(look.sample.size(), sample_room);
  writer.put(blocks);
  for (uint64_t i = 0; i < blocks; ++i)
    writer.put(look.sample[i].block), writer.put(look.sample[i].masks);
  std::fill(writer.end(), out + body_bytes(sample_room), std::byte{0});
}

Findings read(const std::byte* in, size_t sample_room) {
  Reader reader(in);
  Findings findings;
  Trial& trial = findings.trial;
  reader.get(trial.bucket), reader.get(trial.candidate);
  reader.get(trial.seconds), reader.get(trial.round_seconds), reader.get(trial.stages);
  reader.get(findings.listed), reader.get(findings.listed_in_sum);
  Look& look = findings.look;
  reader.get(look.numel), reader.get(look.threshold);
  reader.get(look.packed_share), reader.get(look.sampled_values);
  for (Counts& bin : look.bins) bin = read_counts(reader);
  uint64_t blocks = 0;
  reader.get(blocks);
  check_at_most("sampled blocks", blocks, sample_room);
  look.sample.resize(blocks);
  for (SampledBlock& block : look.sample) reader.get(block.block), reader.get(block.masks);
  return findings;
}

// Everybody's message of the same length, own included, by rank.
std::vector<Buffer> gather_messages(Transport& transport, const Tag& tag, const Buffer& own) {
  const int rank = transport.rank();
  std::vector<Expected> from;
  std::vector<Outgoing> to;
  for (int peer = 0; peer < transport.size(); ++peer) {
    if (peer == rank) continue;
    from.push_back({peer, own.bytes});
    to.push_back({peer, own});
  }
  const Ticket ticket = transport.expect(tag, from);
  transport.send(ticket, to);
  std::vector<Buffer> messages = transport.wait(ticket);
  messages.insert(messages.begin() + rank, own);
  for (int source = 0; source < transport.size(); ++source) {
    const Header header = read_header(messages[source].span());
    check_identity(
        header, {tag.layout, tag.sequence, tag.phase, tag.chunk, static_cast<uint16_t>(source)}, 0);
    check_field("value_bytes", header.value_bytes, own.bytes - kHeaderBytes);
  }
  return messages;
}

Buffer empty_message(Transport& transport, const Allocate& allocate, const Tag& tag, size_t bytes) {
  Buffer message = allocate(kHeaderBytes + bytes);
  Header header;
  header.identity = {tag.layout, tag.sequence, tag.phase, tag.chunk,
                     static_cast<uint16_t>(transport.rank())};
  header.count = bytes / sizeof(float);
  header.value_bytes = bytes;
  write_header(header, message.data);
  return message;
}

}  // namespace

std::vector<Findings> gather(Transport& transport, const Allocate& allocate, const Tag& tag,
                             const Findings& own, size_t sample_room) {
  const Buffer message = empty_message(transport, allocate, tag, body_bytes(sample_room));
  write(own, sample_room, message.data + kHeaderBytes);
  std::vector<Findings> findings;
  for (const Buffer& received : gather_messages(transport, tag, message))
    findings.push_back(read(received.data + kHeaderBytes, sample_room));
  return findings;
}

void meet(Transport& transport, const Allocate& allocate, const Tag& tag) {
  gather_messages(transport, tag, empty_message(transport, allocate, tag, sizeof(float)));
}

}  // namespace zen
