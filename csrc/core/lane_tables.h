// For each 8-bit mask, how to move eight lanes: together (compress) or apart (expand).
#pragma once

#include <array>
#include <cstdint>

namespace zen {

// Lane numbers as bytes, for lanes of 32 bits once they are widened. The sign bit marks lanes that
// get nothing.
struct LaneTables {
  // compress[m][i] is the lane of the i-th set bit of m.
  alignas(64) std::array<std::array<uint8_t, 8>, 256> compress{};
  // expand[m][lane] is the number of set bits below `lane`, or 0x80 if the lane's bit is not set.
  alignas(64) std::array<std::array<uint8_t, 8>, 256> expand{};
  // The same two as byte shuffles of eight 16-bit lanes.
  alignas(64) std::array<std::array<uint8_t, 16>, 256> compress16{};
  alignas(64) std::array<std::array<uint8_t, 16>, 256> expand16{};
};

constexpr LaneTables make_lane_tables() {
  LaneTables tables;
  for (unsigned mask = 0; mask < 256; ++mask) {
    uint8_t rank = 0;
    for (uint8_t lane = 0; lane < 8; ++lane) {
      const bool set = (mask >> lane & 1) != 0;
      tables.expand[mask][lane] = set ? rank : 0x80;
      for (uint8_t byte = 0; byte < 2; ++byte)
        tables.expand16[mask][2u * lane + byte] =
            set ? static_cast<uint8_t>(2 * rank + byte) : uint8_t{0x80};
      if (!set) continue;
      tables.compress[mask][rank] = lane;
      for (uint8_t byte = 0; byte < 2; ++byte)
        tables.compress16[mask][2u * rank + byte] = static_cast<uint8_t>(2 * lane + byte);
      ++rank;
    }
  }
  return tables;
}

inline constexpr LaneTables kLaneTables = make_lane_tables();

}  // namespace zen
