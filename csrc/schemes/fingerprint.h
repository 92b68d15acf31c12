// A 64-bit number that two ranks compare instead of what it was made from.
#pragma once

#include <cstdint>
#include <string_view>

namespace zen {

// FNV-1a over bytes in a fixed order, so that ranks of different machines agree.
class Fingerprint {
 public:
  void add(std::string_view text) {
    for (const char c : text) add_byte(static_cast<uint8_t>(c));
    add(text.size());
  }
  void add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) add_byte(static_cast<uint8_t>(number >> shift));
  }
  // FNV's low half depends on little of the input's high bits: the finaliser of MurmurHash3 spreads
  // every bit, because only the low half travels with messages.
  uint64_t result() const {
    uint64_t x = hash_;
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
  }

 private:
  void add_byte(uint8_t byte) { hash_ = (hash_ ^ byte) * 0x100000001b3u; }

  uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace zen
