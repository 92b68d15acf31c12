// An input of open_fuzz: two bytes that choose the shard and the dtype, and a message. Shared with
// the program that writes its seeds.
#pragma once

#include <cstdint>
#include <iterator>

namespace zen::fuzz {

constexpr uint64_t kSizes[] = {0, 1, 63, 64, 65, 130, 256, 1000, 4099, 20000};

inline uint64_t elements_of(uint8_t byte) {
  return kSizes[byte % std::size(kSizes)];
}

}  // namespace zen::fuzz
