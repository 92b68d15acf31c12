// What one core of this machine can read, copy and fill: the bounds that every other figure is
// compared with, measured in the same run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace zen::bench {

// Memory that one run of a probe touches: a copy reads one line and writes one.
inline size_t read_bytes(size_t bytes) {
  return bytes;
}
inline size_t copy_bytes(size_t bytes) {
  return 2 * bytes;
}
inline size_t fill_bytes(size_t bytes) {
  return bytes;
}

#if defined(__x86_64__)
#define ZEN_BENCH_WIDE __attribute__((target("avx2")))
#else
#define ZEN_BENCH_WIDE
#endif

// Reads every byte. The faster of several forms tried: registers of 32 bytes where there are such,
// no prefetch. REQUIRES: from is aligned to 32, bytes % 256 == 0.
ZEN_BENCH_WIDE inline uint64_t read_all(const std::byte* from, size_t bytes) {
  using Vector __attribute__((vector_size(32), may_alias)) = uint64_t;
  const auto* vectors = reinterpret_cast<const Vector*>(from);
  Vector a{}, b{}, c{}, d{};
  for (size_t i = 0; i < bytes / 32; i += 8) {
    a ^= vectors[i] ^ vectors[i + 4];
    b ^= vectors[i + 1] ^ vectors[i + 5];
    c ^= vectors[i + 2] ^ vectors[i + 6];
    d ^= vectors[i + 3] ^ vectors[i + 7];
  }
  const Vector sum = a ^ b ^ c ^ d;
  return sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
}

inline void copy_all(const std::byte* from, std::byte* to, size_t bytes) {
  std::memcpy(to, from, bytes);
}

inline void fill_all(std::byte* to, size_t bytes) {
  std::memset(to, 1, bytes);
}

}  // namespace zen::bench
