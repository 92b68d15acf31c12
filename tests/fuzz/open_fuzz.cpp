// Fuzzes open(), decode_write() and merge(): whatever the bytes, they are refused or give a sound
// normal form that the scalar and the vector kernels understand alike, and nothing outside the
// message, the scratch memory and the gradient is touched (AddressSanitizer watches). Two bytes of
// the input choose the shard and the dtype, the rest is the message; its identity is corrected, so
// that the fuzzer need not guess it.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/decode_write.h"
#include "core/error.h"
#include "core/merge.h"
#include "open_input.h"
#include "selections.h"

namespace zen {
namespace {

void demand(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "open_fuzz: open() accepted a message with %s\n", what);
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

std::vector<std::byte> written(const OpenMessage& opened, const Shard& shard, DType dtype,
                               Isa isa) {
  const uint64_t numel = shard.placement->numel();
  std::vector<std::byte> target(numel * size_of(dtype));
  const Gradient gradient{{target.data(), target.size(), nullptr}, dtype, numel};
  decode_write({&opened, 1}, {&shard, 1}, gradient, isa);
  return target;
}

void check_kernels(const OpenMessage& opened, const Shard& shard, DType dtype) {
  const auto scalar = written(opened, shard, dtype, Isa::scalar);
  demand(written(opened, shard, dtype, preferred_isa()) == scalar,
         "values that the kernels write differently");
  const std::vector<OpenMessage> twice{opened, opened};
  const ShardSelection sum = merge(twice, shard, dtype, 2, test::heap_buffer);
  demand(sum.count == opened.header.count, "elements that its sum with itself lists differently");
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

void open_input(const uint8_t* data, size_t size) {
  if (size < 2) return;
  const uint64_t numel = fuzz::elements_of(data[0]);
  const auto dtype = static_cast<DType>(data[1] % 3);
  const auto placement = Placement::make(PlacementKind::whole, numel, 1, 0);
  const Shard shard = placement->shard(0, placement->all());
  const Buffer message = message_of(data + 2, size - 2, dtype);
  try {
    const OpenMessage opened = open(message, shard, dtype, Identity{}, test::heap_buffer);
    check_sound(opened, shard);
    check_kernels(opened, shard, dtype);
  } catch (const MalformedMessage&) {
  }
}

}  // namespace
}  // namespace zen

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  zen::open_input(data, size);
  return 0;
}
