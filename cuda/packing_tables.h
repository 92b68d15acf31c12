// What host and kernels know alike of packed values: core's codes, and how values are cut.
#pragma once

#include <cstdint>

#include "core/value_packing_chunk.h"

namespace zen::cuda {

// core's tables where kernels can index them: in device memory.
struct CodeTables {
  packing::Code codes[packing::kCodes.size()];
  packing::CodeTables tables[packing::kCodes.size()];

  static CodeTables make() {
    CodeTables all;
    for (size_t code = 0; code < packing::kCodes.size(); ++code) {
      all.codes[code] = packing::kCodes[code];
      all.tables[code] = packing::kTables[code];
    }
    return all;
  }
};

// Whole blocks of 64 values, chunks of up to 64 blocks, and the values behind the last block.
struct ChunkCounts {
  uint64_t values;

  constexpr uint64_t blocks() const { return values / packing::kBlockValues; }
  constexpr uint64_t chunks() const {
    return (blocks() + packing::kChunkBlocks - 1) / packing::kChunkBlocks;
  }
  constexpr uint64_t tail() const { return values % packing::kBlockValues; }
  constexpr unsigned blocks_of(uint64_t chunk) const {
    const uint64_t left = blocks() - chunk * packing::kChunkBlocks;
    return static_cast<unsigned>(left < packing::kChunkBlocks ? left : packing::kChunkBlocks);
  }
};

}  // namespace zen::cuda
