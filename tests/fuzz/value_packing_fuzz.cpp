// Any bytes as packed values: every kernel refuses them or returns the same values. And any bytes
// as values: they come back, and every kernel packs them alike.
//
//   input := mode:u8 dtype:u8 count:u16 bytes       mode even: `bytes` are packed, odd: they are
//   values
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/value_packing.h"

namespace zen::fuzz {
namespace {

using Bytes = std::vector<std::byte>;

constexpr size_t kControlBytes = 4;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "value_packing_fuzz: %s\n", what);
  std::abort();
}

// From and to memory of exactly the right size.
std::optional<Bytes> unpack(DType dtype, std::span<const std::byte> packed, size_t count, Isa isa) {
  const std::unique_ptr<std::byte[]> exact(new std::byte[packed.size()]);
  if (!packed.empty()) std::memcpy(exact.get(), packed.data(), packed.size());
  Bytes values(count * size_of(dtype));
  try {
    unpack_values(dtype, {exact.get(), packed.size()}, count, values.data(), isa);
  } catch (const MalformedMessage&) {
    return std::nullopt;
  }
  return values;
}

void unpack_everywhere(DType dtype, std::span<const std::byte> packed, size_t count) {
  const auto scalar = unpack(dtype, packed, count, Isa::scalar);
  if (!supported(Isa::avx2)) return;
  require(unpack(dtype, packed, count, Isa::avx2) == scalar, "kernels unpack differently");
}

Bytes pack(DType dtype, const Bytes& values, Isa isa) {
  const size_t count = values.size() / size_of(dtype);
  Bytes packed(max_packed_bytes(dtype, count));
  packed.resize(pack_values(dtype, values.data(), count, packed.data(), isa));
  return packed;
}

void pack_everywhere(DType dtype, std::span<const std::byte> bytes) {
  const size_t count = bytes.size() / size_of(dtype);
  const Bytes values(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(count * size_of(dtype)));
  const Bytes packed = pack(dtype, values, Isa::scalar);
  require(unpack(dtype, packed, count, Isa::scalar) == values, "values do not come back");
  if (!supported(Isa::avx2)) return;
  require(pack(dtype, values, Isa::avx2) == packed, "kernels pack differently");
  require(unpack(dtype, packed, count, Isa::avx2) == values, "values do not come back from AVX2");
}

}  // namespace
}  // namespace zen::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  using namespace zen;
  if (size < fuzz::kControlBytes) return -1;  // no use to the corpus
  const auto dtype = static_cast<DType>(input[1] % 3);
  uint16_t count = 0;
  std::memcpy(&count, input + 2, sizeof count);
  const auto bytes = std::as_bytes(std::span(input, size)).subspan(fuzz::kControlBytes);
  if (input[0] % 2 == 0)
    fuzz::unpack_everywhere(dtype, bytes, count % 16384);
  else
    fuzz::pack_everywhere(dtype, bytes);
  return 0;
}
