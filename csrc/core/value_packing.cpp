#include "core/value_packing.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/error.h"
#include "core/value_packing_chunk.h"

namespace zen {

using namespace packing;

namespace {

struct Entry {
  Past past{};
  uint8_t code = kRawChunk;
};

struct Chunks {
  size_t blocks, chunks, tail;  // whole blocks, chunks of them, values behind the last block

  explicit Chunks(size_t count)
      : blocks(count / kBlockValues),
        chunks((blocks + kChunkBlocks - 1) / kChunkBlocks),
        tail(count % kBlockValues) {}

  size_t blocks_of(size_t chunk) const {
    return std::min(kChunkBlocks, blocks - chunk * kChunkBlocks);
  }
};

size_t raw_bytes(DType dtype, size_t blocks) {
  return blocks * kBlockValues * size_of(dtype);
}

void write_entry(const Entry& entry, std::byte* out) {
  std::memcpy(out, entry.past.data(), sizeof(entry.past));
  out[6] = static_cast<std::byte>(entry.code);
  out[7] = std::byte{0};
}

[[noreturn]] void reject(size_t chunk, const std::string& reason) {
  throw MalformedMessage("packed values: chunk " + std::to_string(chunk) + " " + reason);
}

Entry read_entry(std::span<const std::byte> packed, size_t chunk, size_t blocks) {
  const std::byte* in = packed.data() + chunk * kEntryBytes;
  Entry entry;
  std::memcpy(entry.past.data(), in, sizeof(entry.past));
  entry.code = static_cast<uint8_t>(in[6]);
  if (in[7] != std::byte{0})
    reject(chunk, "has " + std::to_string(int(in[7])) + " where 0 is reserved");
  if (entry.code != kRawChunk && entry.code >= kCodes.size())
    reject(chunk, "has the unknown code " + std::to_string(entry.code));
  size_t most = entry.code == kRawChunk ? 0 : blocks * kBlockValues;
  for (uint16_t past : entry.past) {
    if (past > most)
      reject(chunk, "sends on " + std::to_string(past) + " of " + std::to_string(most) + " values");
    most = past;
  }
  return entry;
}

size_t body_bytes(DType dtype, const Entry& entry, size_t blocks) {
  if (entry.code == kRawChunk) return raw_bytes(dtype, blocks);
  return BodyLayout(dtype, kCodes[entry.code], blocks, entry.past).bytes;
}

size_t cheapest_code(const DeltaCounts& counts, uint64_t values) {
  size_t best = 0;
  uint64_t best_bits = ~uint64_t{0};
  for (size_t code = 0; code < kCodes.size(); ++code) {
    const uint64_t bits = cost_bits(kCodes[code], counts, values);
    if (bits < best_bits) best = code, best_bits = bits;
  }
  return best;
}

// Puts the streams at their places behind the parts that are already in the body.
void append_streams(const Code& code, const Streams& streams, const BodyLayout& at,
                    std::byte* body) {
  std::memcpy(body + at.largest, streams.largest, at.level1 - at.largest);
  const size_t starts[kLevels] = {0, at.level1, at.level2};
  for (int level = 1; level < kLevels; ++level) {
    const size_t bytes = BodyLayout::plane_bytes(streams.past[level - 1]);
    for (int plane = 0; plane < code.width[level]; ++plane)
      std::memcpy(body + starts[level] + plane * bytes, streams.level[level][plane], bytes);
  }
  const size_t end = at.exponents + streams.past[2];
  std::memcpy(body + at.exponents, streams.exponents, streams.past[2]);
  std::memset(body + end, 0, at.bytes - end);
}

Kernels kernels_of(DType dtype, Isa isa) {
  return isa == Isa::avx2 && quick_pext() ? kernels_avx2(dtype) : kernels_scalar(dtype);
}

// Returns the length of the body.
size_t pack_chunk(const Kernels& kernels, DType dtype, const std::byte* values, size_t blocks,
                  std::byte* body, Entry& entry) {
  const size_t raw = raw_bytes(dtype, blocks);
  const size_t code =
      cheapest_code(kernels.count_deltas(values, blocks, kSampleStride), sampled_values(blocks));
  Streams streams;
  kernels.pack_blocks(code, values, blocks, body, streams);
  const BodyLayout at(dtype, kCodes[code], blocks, streams.past);
  if (at.bytes >= raw) {
    entry = {};
    std::memcpy(body, values, raw);
    return raw;
  }
  entry = {streams.past, static_cast<uint8_t>(code)};
  append_streams(kCodes[code], streams, at, body);
  return at.bytes;
}

// `rest` begins with the chunk's body of `bytes` bytes. Returns whether it is sound.
bool unpack_chunk(const Kernels& kernels, const Entry& entry, std::span<const std::byte> rest,
                  size_t bytes, size_t blocks, std::byte* values) {
  const std::byte* body = rest.data();
  if (entry.code == kRawChunk) {
    std::memcpy(values, body, bytes);
    return true;
  }
  std::byte padded[kChunkValues * sizeof(float) + kReadSlack];
  if (rest.size() < bytes + kReadSlack) {  // the end of the message: give the kernel its slack
    std::memcpy(padded, body, bytes);
    std::memset(padded + bytes, 0, kReadSlack);
    body = padded;
  }
  return kernels.unpack_blocks(entry.code, body, blocks, entry.past, values);
}

}  // namespace

size_t max_packed_bytes(DType dtype, size_t count) {
  return Chunks(count).chunks * kEntryBytes + count * size_of(dtype);
}

// The table, and for each block its fractions, one plane and its largest exponent; the tail.
size_t min_packed_bytes(DType dtype, size_t count) {
  const Chunks of(count);
  return of.chunks * kEntryBytes + of.blocks * (split_of(dtype).block_bytes() + 8 + 1) +
         of.tail * size_of(dtype);
}

size_t pack_values(DType dtype, const std::byte* values, size_t count, std::byte* out, Isa isa) {
  const Kernels kernels = kernels_of(dtype, isa);
  const Chunks of(count);
  std::byte* body = out + of.chunks * kEntryBytes;
  for (size_t chunk = 0; chunk < of.chunks; ++chunk) {
    Entry entry;
    const size_t blocks = of.blocks_of(chunk);
    body += pack_chunk(kernels, dtype, values, blocks, body, entry);
    values += raw_bytes(dtype, blocks);
    write_entry(entry, out + chunk * kEntryBytes);
  }
  const size_t tail = of.tail * size_of(dtype);
  if (tail) std::memcpy(body, values, tail);
  return static_cast<size_t>(body - out) + tail;
}

void check_packed(DType dtype, std::span<const std::byte> packed, size_t count) {
  const Chunks of(count);
  if (packed.size() / kEntryBytes < of.chunks)
    throw MalformedMessage("packed values: " + std::to_string(packed.size()) +
                           " bytes are too short for the table of " + std::to_string(of.chunks) +
                           " chunks");
  size_t expected = of.chunks * kEntryBytes + of.tail * size_of(dtype);
  for (size_t chunk = 0; chunk < of.chunks; ++chunk) {
    const size_t blocks = of.blocks_of(chunk);
    const size_t bytes = body_bytes(dtype, read_entry(packed, chunk, blocks), blocks);
    if (bytes > raw_bytes(dtype, blocks)) reject(chunk, "is longer than its values");
    expected += bytes;
  }
  if (expected != packed.size())
    throw MalformedMessage("packed values: " + std::to_string(packed.size()) + " bytes, but " +
                           std::to_string(count) + " values with this table need " +
                           std::to_string(expected));
}

void unpack_values(DType dtype, std::span<const std::byte> packed, size_t count, std::byte* out,
                   Isa isa) {
  check_packed(dtype, packed, count);
  const Kernels kernels = kernels_of(dtype, isa);
  const Chunks of(count);
  std::span<const std::byte> rest = packed.subspan(of.chunks * kEntryBytes);
  for (size_t chunk = 0; chunk < of.chunks; ++chunk) {
    const size_t blocks = of.blocks_of(chunk);
    const Entry entry = read_entry(packed, chunk, blocks);
    const size_t bytes = body_bytes(dtype, entry, blocks);
    if (!unpack_chunk(kernels, entry, rest, bytes, blocks, out))
      reject(chunk, "has planes that contradict its counts");
    rest = rest.subspan(bytes);
    out += raw_bytes(dtype, blocks);
  }
  if (of.tail) std::memcpy(out, rest.data(), of.tail * size_of(dtype));
}

}  // namespace zen
