#include "core/message.h"

#include <bit>
#include <cstring>

#include "core/error.h"

namespace zen {

static_assert(std::endian::native == std::endian::little,
              "messages are little-endian and are read in place");

namespace {

constexpr uint8_t kPackedFlag = 0x80;

template <class T>
void put(std::byte* out, size_t offset, T value) {
  std::memcpy(out + offset, &value, sizeof value);
}

template <class T>
T get(const std::byte* in, size_t offset) {
  T value;
  std::memcpy(&value, in + offset, sizeof value);
  return value;
}

[[noreturn]] void reject(const std::string& what) {
  throw MalformedMessage("malformed message: " + what);
}

void check_known(const std::byte* in) {
  if (get<char>(in, 0) != 'Z' || get<char>(in, 1) != 'S')
    reject("magic is " + std::to_string(get<uint16_t>(in, 0)) + ", expected 21338 ('ZS')");
  if (get<uint8_t>(in, 2) != kVersion)
    reject("version is " + std::to_string(get<uint8_t>(in, 2)) + ", expected " +
           std::to_string(kVersion) + ": run the same zensync on every rank");
  if (get<uint8_t>(in, 3) >= kEncodings)
    reject("encoding is " + std::to_string(get<uint8_t>(in, 3)) + ", known are 0 to " +
           std::to_string(kEncodings - 1));
  if (get<uint8_t>(in, 4) > static_cast<uint8_t>(DType::bf16))
    reject("dtype is " + std::to_string(get<uint8_t>(in, 4)) + ", known are 0 to 2");
}

// `size` is at least kHeaderBytes. Each comparison is written so that nothing can overflow.
void check_sizes(const Header& header, size_t size) {
  const uint64_t room = size - kHeaderBytes;
  if (header.value_bytes > room)
    reject("value_bytes is " + std::to_string(header.value_bytes) + " in a message of " +
           std::to_string(size) + " bytes");
  if (header.index_bytes == 0) return;
  if (header.index_offset() > size || header.index_bytes > size - header.index_offset())
    reject("index_bytes is " + std::to_string(header.index_bytes) + " in a message of " +
           std::to_string(size) + " bytes");
}

}  // namespace

const char* name_of(Encoding encoding) {
  switch (encoding) {
    case Encoding::dense:
      return "dense";
    case Encoding::words:
      return "words";
    case Encoding::positions:
      return "positions";
    case Encoding::bitmap:
      return "bitmap";
    case Encoding::coo:
      return "coo";
    case Encoding::blocks:
      return "blocks";
    case Encoding::fragment:
      return "fragment";
  }
  return "unknown";
}

void write_header(const Header& header, std::byte* out) {
  put(out, 0, 'Z');
  put(out, 1, 'S');
  put(out, 2, kVersion);
  put(out, 3, header.encoding);
  put(out, 4, header.dtype);
  put(out, 5, static_cast<uint8_t>(header.flags | (header.packed ? kPackedFlag : 0)));
  put(out, 6, header.identity.phase);
  put(out, 7, header.identity.chunk);
  put(out, 8, header.identity.sequence);
  put(out, 12, header.identity.layout);
  put(out, 16, header.owner);
  put(out, 18, header.identity.source);
  put(out, 20, header.present_words);
  put(out, 24, header.count);
  put(out, 32, header.value_bytes);
  put(out, 40, header.index_bytes);
}

Header read_header(std::span<const std::byte> message) {
  return read_header(message, message.size());
}

Header read_header(std::span<const std::byte> beginning, uint64_t message_bytes) {
  if (message_bytes < kHeaderBytes)
    reject(std::to_string(message_bytes) + " bytes, a header alone has " +
           std::to_string(kHeaderBytes));
  const std::byte* in = beginning.data();
  check_known(in);
  Header header;
  header.encoding = get<Encoding>(in, 3);
  header.dtype = get<DType>(in, 4);
  header.flags = get<uint8_t>(in, 5) & ~kPackedFlag;
  header.packed = (get<uint8_t>(in, 5) & kPackedFlag) != 0;
  header.identity.phase = get<uint8_t>(in, 6);
  header.identity.chunk = get<uint8_t>(in, 7);
  header.identity.sequence = get<uint32_t>(in, 8);
  header.identity.layout = get<uint32_t>(in, 12);
  header.owner = get<uint16_t>(in, 16);
  header.identity.source = get<uint16_t>(in, 18);
  header.present_words = get<uint32_t>(in, 20);
  header.count = get<uint64_t>(in, 24);
  header.value_bytes = get<uint64_t>(in, 32);
  header.index_bytes = get<uint64_t>(in, 40);
  check_sizes(header, message_bytes);
  return header;
}

size_t message_bytes(std::span<const std::byte> message) {
  return read_header(message).message_bytes();
}

}  // namespace zen
