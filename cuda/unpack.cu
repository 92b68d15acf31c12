#include "cuda/unpack.h"

#include "cuda/error.h"
#include "cuda/packing.cuh"
#include "cuda/verdict.cuh"

namespace zen::cuda {

namespace {

struct Entry {
  Past past{};
  unsigned code = kRawChunk;

  __device__ explicit Entry(uint64_t bits) : code(static_cast<unsigned>(bits >> 48 & 0xff)) {
    for (int level = 0; level < kLevels; ++level)
      past[static_cast<size_t>(level)] = static_cast<uint16_t>(bits >> 16 * level);
  }
};

__device__ uint64_t entry_bits(const OpenJob& job, uint64_t chunk) {
  return reinterpret_cast<const uint64_t*>(job.message + kHeaderBytes)[chunk];
}

__device__ bool is_sound(uint64_t bits, unsigned blocks) {
  const Entry entry(bits);
  if (bits >> 56 != 0) return false;
  if (entry.code != kRawChunk && entry.code >= packing::kCodes.size()) return false;
  uint64_t most = entry.code == kRawChunk ? 0 : blocks * kBlockValues;
  for (const uint16_t past : entry.past) {
    if (past > most) return false;
    most = past;
  }
  return true;
}

__device__ uint64_t body_bytes(const CodeTables& tables, DType dtype, const Entry& entry,
                               unsigned blocks) {
  if (entry.code == kRawChunk) return blocks * kBlockValues * size_of(dtype);
  return BodyLayout(dtype, tables.codes[entry.code], blocks, entry.past).bytes;
}

__global__ void __launch_bounds__(kTileSlots)
    measure_bodies(const CodeTables* tables, const OpenJob* jobs, unsigned count) {
  ZEN_SHARED(uint64_t, readable, 1);
  const Place place = place_of_block(count);
  const OpenJob& job = jobs[place.job];
  const uint64_t chunk = place.tile * kTileSlots + threadIdx.x;
  if (!is_still_readable(job, readable) || !job.opened->packed) return;
  const ChunkCounts counts{job.opened->count};
  if (chunk >= counts.chunks()) return;
  const unsigned blocks = counts.blocks_of(chunk);
  const uint64_t bits = entry_bits(job, chunk);
  if (!is_sound(bits, blocks)) return reject(job);
  job.body_sums[chunk] = body_bytes(*tables, job.dtype, Entry(bits), blocks);
}

// One chunk's body and what is known of its levels, block by block.
struct Chunk {
  const Code& code;
  const packing::CodeTables& table;
  const std::byte* body;
  BodyLayout at;
  Past past;
  unsigned blocks;
  uint32_t* sums;   // kLevelCounts
  uint64_t* masks;  // of level l and block b: the values that level l sends on

  __device__ uint64_t& mask(int level, unsigned block) const {
    return masks[static_cast<unsigned>(level) * kChunkBlocks + block];
  }
  __device__ uint64_t place(int level, unsigned block, unsigned elem) const {
    return sums[static_cast<unsigned>(level) * kLevelStride + block] +
           rank_of(mask(level, block), elem);
  }
};

__device__ uint32_t bit_of(const std::byte* plane, uint64_t at) {
  return static_cast<uint32_t>(plane[at / 8]) >> at % 8 & 1;
}

__device__ uint32_t digit_of(const Chunk& chunk, int level, unsigned block, unsigned elem) {
  const unsigned width = chunk.code.width[static_cast<size_t>(level)];
  uint32_t digit = 0;
  if (level == 0) {
    const std::byte* planes = chunk.body + 8 * block * width;
    for (unsigned plane = 0; plane < width; ++plane)
      digit |= bit_of(planes + 8 * plane, elem) << plane;
    return digit;
  }
  const uint64_t bytes = BodyLayout::plane_bytes(chunk.past[static_cast<size_t>(level - 1)]);
  const std::byte* planes = chunk.body + (level == 1 ? chunk.at.level1 : chunk.at.level2);
  const uint64_t place = chunk.place(level - 1, block, elem);
  for (unsigned plane = 0; plane < width; ++plane)
    digit |= bit_of(planes + plane * bytes, place) << plane;
  return digit;
}

__device__ bool is_sent_on(const Chunk& chunk, int level, unsigned block, unsigned elem) {
  if (level > 0 && !lists(chunk.mask(level - 1, block), elem)) return false;
  return digit_of(chunk, level, block, elem) == static_cast<uint32_t>(chunk.code.full(level));
}

// Masks and sums of a level, those of the levels before being there. Returns whether it sends on as
// many values as the table of chunks says. Every thread of the block calls it.
__device__ bool read_level(const Chunk& chunk, int level) {
  const unsigned lane = lane_of_thread();
  for (unsigned block = threadIdx.x / kWarpLanes; block < chunk.blocks; block += kWarps) {
    const uint64_t mask = ballot_of_two(is_sent_on(chunk, level, block, lane),
                                        is_sent_on(chunk, level, block, lane + kWarpLanes));
    if (lane != 0) continue;
    chunk.mask(level, block) = mask;
    chunk.sums[static_cast<unsigned>(level) * kLevelStride + block] =
        static_cast<uint32_t>(popcount(mask));
  }
  const auto own = static_cast<unsigned>(level);
  sum_blocks(chunk.sums, own, own + 1, chunk.blocks);
  return chunk.sums[own * kLevelStride + kChunkBlocks] == chunk.past[own];
}

template <class T>
__device__ uint32_t fraction_of(const std::byte* fractions, unsigned elem) {
  constexpr int kBytes = Parts<T>::split.fraction_bytes();
  uint32_t fraction = 0;
  for (int byte = 0; byte < kBytes; ++byte)
    fraction |= static_cast<uint32_t>(fractions[elem * kBytes + static_cast<unsigned>(byte)])
                << 8 * byte;
  for (int plane = 0; plane < Parts<T>::split.fraction_planes(); ++plane)
    fraction |= bit_of(fractions + kBlockValues * kBytes + 8 * static_cast<unsigned>(plane), elem)
                << (8 * kBytes + plane);
  return fraction;
}

__device__ uint32_t exponent_of(const Chunk& chunk, unsigned block, unsigned elem) {
  uint32_t rank = 0;
  for (int level = 0; level < kLevels; ++level) {
    if (level > 0 && !lists(chunk.mask(level - 1, block), elem)) break;
    rank += digit_of(chunk, level, block, elem);
  }
  if (lists(chunk.mask(kLevels - 1, block), elem))
    return static_cast<uint32_t>(
        chunk.body[chunk.at.exponents + chunk.place(kLevels - 1, block, elem)]);
  return static_cast<uint32_t>(chunk.body[chunk.at.largest + block]) - chunk.table.deltas[rank];
}

template <class T>
__device__ void write_values(const Chunk& chunk, std::byte* values) {
  for (unsigned block = threadIdx.x / kWarpLanes; block < chunk.blocks; block += kWarps) {
    const std::byte* fractions =
        chunk.body + chunk.at.fractions + block * Parts<T>::split.block_bytes();
    for_own_elements([&](unsigned elem) {
      Parts<T>::store(
          values, block * kBlockValues + elem,
          Parts<T>::join(exponent_of(chunk, block, elem), fraction_of<T>(fractions, elem)));
    });
  }
}

template <class T>
__device__ void unpack_job_chunk(const CodeTables& tables, const OpenJob& job, uint64_t tile,
                                 uint32_t* sums, uint64_t* masks) {
  const ChunkCounts counts{job.opened->count};
  const uint64_t chunks = counts.chunks(), tail_bytes = counts.tail() * sizeof(T);
  if (tile >= (chunks == 0 ? 1 : chunks)) return;
  const std::byte* packed = job.message + kHeaderBytes;
  const uint64_t bodies_end = chunks * kEntryBytes + job.body_sums[chunks];
  if (bodies_end + tail_bytes != job.opened->value_bytes) {
    if (threadIdx.x == 0) reject(job);
    return;
  }
  if (tile == 0)
    copy_bytes(job.unpacked + counts.blocks() * kBlockValues * sizeof(T), packed + bodies_end,
               tail_bytes);
  if (tile >= chunks) return;
  const unsigned blocks = counts.blocks_of(tile);
  const Entry entry(entry_bits(job, tile));
  const std::byte* body = packed + chunks * kEntryBytes + job.body_sums[tile];
  std::byte* values = job.unpacked + tile * kChunkValues * sizeof(T);
  if (entry.code == kRawChunk) return copy_bytes(values, body, blocks * kBlockValues * sizeof(T));
  const Code& code = tables.codes[entry.code];
  const Chunk chunk{code,       tables.tables[entry.code],
                    body,       BodyLayout(DTypeOf<T>::value, code, blocks, entry.past),
                    entry.past, blocks,
                    sums,       masks};
  for (int level = 0; level < kLevels; ++level)
    if (!read_level(chunk, level)) {
      if (threadIdx.x == 0) reject(job);
      return;
    }
  write_values<T>(chunk, values);
}

__global__ void __launch_bounds__(kTileSlots)
    unpack_chunk(const CodeTables* tables, const OpenJob* jobs, unsigned count) {
  ZEN_SHARED(uint64_t, readable, 1);
  ZEN_SHARED(uint32_t, sums, kLevelCounts);
  ZEN_SHARED(uint64_t, masks, kLevels* kChunkBlocks);
  const Place place = place_of_block(count);
  const OpenJob& job = jobs[place.job];
  if (!is_still_readable(job, readable) || !job.opened->packed) return;
  switch (job.dtype) {
    case DType::f16:
      return unpack_job_chunk<f16>(*tables, job, place.tile, sums, masks);
    case DType::bf16:
      return unpack_job_chunk<bf16>(*tables, job, place.tile, sums, masks);
    case DType::f32:
      return unpack_job_chunk<float>(*tables, job, place.tile, sums, masks);
  }
}

}  // namespace

void unpack_measure(const CodeTables* tables, const OpenJob* jobs, unsigned count,
                    uint64_t most_chunks, cudaStream_t stream) {
  const uint64_t tiles = (most_chunks + kTileSlots - 1) / kTileSlots;
  if (tiles == 0) return;
  launch(measure_bodies, dim3(static_cast<unsigned>(tiles * count)), dim3(kTileSlots), 0, stream,
         tables, jobs, count);
  check_launch("measure_bodies");
}

void unpack_write(const CodeTables* tables, const OpenJob* jobs, unsigned count,
                  uint64_t most_chunks, cudaStream_t stream) {
  const uint64_t chunks = most_chunks == 0 ? 1 : most_chunks;
  launch(unpack_chunk, dim3(static_cast<unsigned>(chunks * count)), dim3(kTileSlots), 0, stream,
         tables, jobs, count);
  check_launch("unpack_chunk");
}

}  // namespace zen::cuda
