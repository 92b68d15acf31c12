// Fuzzes open() and decode_write(): whatever the bytes, they are refused or give a sound normal
// form, and nothing outside the message, the scratch memory and the gradient is touched
// (AddressSanitizer watches). Two bytes of the input choose the shard and the dtype, the rest is
// the message; its identity is corrected, so that the fuzzer need not guess it.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/decode_write.h"
#include "core/error.h"
#include "selections.h"

namespace zen {
namespace {

void demand(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "open() accepted a message with %s\n", what);
  std::abort();
}

void check_sound(const OpenMessage& opened, const Shard& shard) {
  uint64_t count = 0, present = 0;
  for (uint64_t slot = 0; slot < shard.presence_words() * 64; ++slot) {
    if (!bit_at(opened.presence_bits(), slot)) continue;
    demand(slot < shard.slots, "a present slot past the end");
    demand(present < opened.header.present_words, "too many present slots");
    const uint64_t mask = opened.mask_list()[present++];
    demand(mask != 0, "an empty mask");
    demand((mask & ~low_bits(shard.placement->elements(shard.word(slot)))) == 0,
           "a bit past the end");
    count += static_cast<uint64_t>(std::popcount(mask));
  }
  demand(present == opened.header.present_words, "too few present slots");
  demand(count == opened.header.count, "a wrong count");
}

// The given bytes with a header that this receiver waits for.
Buffer message_of(const uint8_t* data, size_t size, DType dtype) {
  const Buffer message = test::heap_buffer(size);
  if (size != 0) std::memcpy(message.data, data, size);
  if (size < kHeaderBytes) return message;
  const auto put = [&](size_t offset, unsigned value) {
    message.data[offset] = static_cast<std::byte>(value);
  };
  put(0, 'Z');
  put(1, 'S');
  put(2, kVersion);
  put(3, data[3] % kEncodings);
  put(4, static_cast<unsigned>(dtype));
  for (size_t offset = 6; offset < 20; ++offset) put(offset, 0);
  return message;
}

void fuzz(const uint8_t* data, size_t size) {
  if (size < 2) return;
  constexpr uint64_t kSizes[] = {0, 1, 63, 64, 65, 130, 256, 1000, 4099, 20000};
  const uint64_t numel = kSizes[data[0] % std::size(kSizes)];
  const auto dtype = static_cast<DType>(data[1] % 3);
  const auto placement = Placement::make(PlacementKind::whole, numel, 1, 0);
  const Shard shard = placement->shard(0, placement->all());
  const Buffer message = message_of(data + 2, size - 2, dtype);
  try {
    const OpenMessage opened = open(message, shard, dtype, Identity{}, test::heap_buffer);
    check_sound(opened, shard);
    const Gradient gradient{test::heap_buffer(numel * size_of(dtype)), dtype, numel};
    decode_write({&opened, 1}, {&shard, 1}, gradient);
  } catch (const MalformedMessage&) {
  }
}

}  // namespace
}  // namespace zen

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  zen::fuzz(data, size);
  return 0;
}
