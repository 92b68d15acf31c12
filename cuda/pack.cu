#include "cuda/pack.h"

#include "cuda/error.h"
#include "cuda/packing.cuh"

namespace zen::cuda {

namespace {

template <class T>
__device__ Two load_two(const std::byte* values) {
  const unsigned lane = lane_of_thread();
  return {Parts<T>::load(values, lane), Parts<T>::load(values, lane + kWarpLanes)};
}

template <class T>
__device__ Two exponents_of(const Two& bits) {
  return {Parts<T>::exponent(bits.low), Parts<T>::exponent(bits.high)};
}

// Of the warp's block.
__device__ uint32_t largest_of(const Two& exponents) {
  uint32_t largest = exponents.low > exponents.high ? exponents.low : exponents.high;
  for (int flip = 16; flip > 0; flip /= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, largest, flip);
    largest = other > largest ? other : largest;
  }
  return largest;
}

// The digits of a value, two bits a level.
__device__ uint32_t digits_of(const packing::CodeTables& table, uint32_t largest,
                              uint32_t exponent) {
  const uint32_t delta = largest - exponent;
  return table.digits[delta < packing::kDeltas ? delta : packing::kDeltas - 1];
}

// Does every level up to `level` send the value on?
__device__ bool is_sent_on(const Code& code, uint32_t digits, int level) {
  for (int at = 0; at <= level; ++at)
    if ((digits >> 2 * at & 3) != static_cast<uint32_t>(code.full(at))) return false;
  return true;
}

__device__ uint64_t sent_on(const Code& code, const Two& digits, int level) {
  return ballot_of_two(is_sent_on(code, digits.low, level), is_sent_on(code, digits.high, level));
}

// Counts deltas of every eighth block, a warp a block. `counts` is cleared shared memory.
template <class T>
__device__ void count_deltas(const std::byte* values, unsigned blocks, uint32_t* counts) {
  const unsigned block = threadIdx.x / kWarpLanes * packing::kSampleStride;
  if (block >= blocks) return;
  const Two exponents = exponents_of<T>(load_two<T>(values + block * kBlockValues * sizeof(T)));
  const uint32_t largest = largest_of(exponents);
  for (unsigned delta = 0; delta < packing::kRanks; ++delta) {
    const uint64_t has =
        ballot_of_two(largest - exponents.low == delta, largest - exponents.high == delta);
    if (lane_of_thread() == 0 && has != 0)
      atomicAdd(counts + delta, static_cast<uint32_t>(popcount(has)));
  }
}

// The code of a chunk: that which the sampled blocks take fewest bits in.
__device__ unsigned cheapest_code(const CodeTables& tables, const uint32_t* counts,
                                  unsigned blocks) {
  packing::DeltaCounts deltas{};
  for (unsigned delta = 0; delta < packing::kRanks; ++delta) deltas[delta] = counts[delta];
  const uint64_t sampled = packing::sampled_values(blocks);
  unsigned best = 0;
  uint64_t best_bits = ~uint64_t{0};
  for (unsigned code = 0; code < packing::kCodes.size(); ++code) {
    const uint64_t bits = packing::cost_bits(tables.codes[code], deltas, sampled);
    if (bits < best_bits) best = code, best_bits = bits;
  }
  return best;
}

__device__ uint64_t entry_of(const Past& past, unsigned code) {
  return past[0] | uint64_t{past[1]} << 16 | uint64_t{past[2]} << 32 | uint64_t{code} << 48;
}

__device__ unsigned code_of(uint64_t entry) {
  return static_cast<unsigned>(entry >> 48);
}

// Counts, block by block, what each level sends on.
template <class T>
__device__ void count_sent_on(const Code& code, const packing::CodeTables& table,
                              const std::byte* values, unsigned blocks, uint32_t* counts) {
  for (unsigned block = threadIdx.x / kWarpLanes; block < blocks; block += kWarps) {
    const Two exponents = exponents_of<T>(load_two<T>(values + block * kBlockValues * sizeof(T)));
    const uint32_t largest = largest_of(exponents);
    const Two digits{digits_of(table, largest, exponents.low),
                     digits_of(table, largest, exponents.high)};
    for (int level = 0; level < kLevels; ++level) {
      const uint64_t mask = sent_on(code, digits, level);
      if (lane_of_thread() == 0)
        counts[static_cast<unsigned>(level) * kLevelStride + block] =
            static_cast<uint32_t>(popcount(mask));
    }
  }
}

__device__ Past past_of(const uint32_t* sums) {
  Past past{};
  for (unsigned level = 0; level < kLevels; ++level)
    past[level] = static_cast<uint16_t>(sums[level * kLevelStride + kChunkBlocks]);
  return past;
}

template <class T>
__global__ void __launch_bounds__(kTileSlots)
    measure_chunk(const CodeTables* tables, const PackJob* jobs, unsigned count) {
  ZEN_SHARED(uint32_t, deltas, packing::kRanks);
  ZEN_SHARED(uint32_t, chosen, 1);
  ZEN_SHARED(uint32_t, counts, kLevelCounts);
  const Place place = place_of_block(count);
  const PackJob& job = jobs[place.job];
  if (place.tile >= job.count.chunks()) return;
  const unsigned blocks = job.count.blocks_of(place.tile);
  const std::byte* values = job.values + place.tile * kChunkValues * sizeof(T);
  if (threadIdx.x < packing::kRanks) deltas[threadIdx.x] = 0;
  __syncthreads();
  count_deltas<T>(values, blocks, deltas);
  __syncthreads();
  if (threadIdx.x == 0) *chosen = cheapest_code(*tables, deltas, blocks);
  __syncthreads();
  const unsigned code = *chosen;
  count_sent_on<T>(tables->codes[code], tables->tables[code], values, blocks, counts);
  sum_blocks(counts, 0, kLevels, blocks);
  if (threadIdx.x != 0) return;
  const Past past = past_of(counts);
  const BodyLayout at(DTypeOf<T>::value, tables->codes[code], blocks, past);
  const uint64_t raw = blocks * kBlockValues * sizeof(T);
  job.entries[place.tile] = at.bytes < raw ? entry_of(past, code) : entry_of(Past{}, kRawChunk);
  job.bodies[place.tile] = at.bytes < raw ? at.bytes : raw;
}

// A level's bits of the values that reach it, in shared memory: a plane is a bit string.
constexpr unsigned kPlaneWords = kChunkValues / 32;

__device__ void put_digit(uint32_t* planes, const Code& code, int level, uint32_t digits,
                          uint64_t at) {
  for (unsigned plane = 0; plane < code.width[static_cast<size_t>(level)]; ++plane)
    if ((digits >> (2 * level + static_cast<int>(plane)) & 1) != 0)
      atomicOr(planes + plane * kPlaneWords + at / 32, 1u << at % 32);
}

template <class T>
__device__ void store_fractions(std::byte* out, const Two& bits) {
  constexpr int kBytes = Parts<T>::split.fraction_bytes();
  const unsigned lane = lane_of_thread();
  const uint32_t low = Parts<T>::fraction(bits.low), high = Parts<T>::fraction(bits.high);
  for (int byte = 0; byte < kBytes; ++byte) {
    out[lane * kBytes + static_cast<unsigned>(byte)] = static_cast<std::byte>(low >> 8 * byte);
    out[(lane + kWarpLanes) * kBytes + static_cast<unsigned>(byte)] =
        static_cast<std::byte>(high >> 8 * byte);
  }
  for (int plane = 0; plane < Parts<T>::split.fraction_planes(); ++plane) {
    const int bit = 8 * kBytes + plane;
    const uint64_t mask = ballot_of_two((low >> bit & 1) != 0, (high >> bit & 1) != 0);
    if (lane < 8)
      out[kBlockValues * kBytes + 8 * static_cast<unsigned>(plane) + lane] =
          static_cast<std::byte>(mask >> 8 * lane);
  }
}

// One value behind the first level: `sums` are those of its block.
struct Sent {
  uint32_t* level1;
  uint32_t* level2;
  uint8_t* exponents;
};

__device__ void send_on(const Code& code, uint32_t digits, uint32_t exponent,
                        const uint64_t (&ranks)[kLevels], const Sent& sent) {
  if (!is_sent_on(code, digits, 0)) return;
  put_digit(sent.level1, code, 1, digits, ranks[0]);
  if (!is_sent_on(code, digits, 1)) return;
  put_digit(sent.level2, code, 2, digits, ranks[1]);
  if (is_sent_on(code, digits, 2)) sent.exponents[ranks[2]] = static_cast<uint8_t>(exponent);
}

template <class T>
__device__ void write_block(const Code& code, const packing::CodeTables& table,
                            const std::byte* values, unsigned block, const BodyLayout& at,
                            const uint32_t* sums, const Sent& sent, std::byte* body) {
  const unsigned lane = lane_of_thread();
  const Two bits = load_two<T>(values + block * kBlockValues * sizeof(T));
  const Two exponents = exponents_of<T>(bits);
  const uint32_t largest = largest_of(exponents);
  const Two digits{digits_of(table, largest, exponents.low),
                   digits_of(table, largest, exponents.high)};
  const unsigned width = code.width[0];
  for (unsigned plane = 0; plane < width; ++plane) {
    const uint64_t mask =
        ballot_of_two((digits.low >> plane & 1) != 0, (digits.high >> plane & 1) != 0);
    if (lane == 0) reinterpret_cast<uint64_t*>(body)[block * width + plane] = mask;
  }
  store_fractions<T>(body + at.fractions + block * Parts<T>::split.block_bytes(), bits);
  if (lane == 0) body[at.largest + block] = static_cast<std::byte>(largest);
  uint64_t low[kLevels], high[kLevels];  // places of the lane's values among those sent on
  for (int level = 0; level < kLevels; ++level) {
    const uint64_t mask = sent_on(code, digits, level);
    const uint64_t before = sums[static_cast<unsigned>(level) * kLevelStride + block];
    low[level] = before + rank_of(mask, lane);
    high[level] = before + rank_of(mask, lane + kWarpLanes);
  }
  send_on(code, digits.low, exponents.low, low, sent);
  send_on(code, digits.high, exponents.high, high, sent);
}

// What was collected in shared memory, behind the parts that are in the body already.
__device__ void append_streams(const Code& code, const BodyLayout& at, const Past& past,
                               const Sent& sent, std::byte* body) {
  const uint32_t* levels[] = {sent.level1, sent.level2};
  const uint64_t begins[] = {at.level1, at.level2};
  for (unsigned level = 1; level < kLevels; ++level) {
    const uint64_t bytes = BodyLayout::plane_bytes(past[level - 1]);
    for (unsigned plane = 0; plane < code.width[level]; ++plane)
      copy_bytes(body + begins[level - 1] + plane * bytes,
                 reinterpret_cast<const std::byte*>(levels[level - 1] + plane * kPlaneWords),
                 bytes);
  }
  copy_bytes(body + at.exponents, reinterpret_cast<const std::byte*>(sent.exponents), past[2]);
  const uint64_t end = at.exponents + past[2] + threadIdx.x;
  if (end < at.bytes) body[end] = std::byte{0};
}

template <class T>
__global__ void __launch_bounds__(kTileSlots, 2)
    write_chunk(const CodeTables* tables, const PackJob* jobs, unsigned count) {
  ZEN_SHARED(uint32_t, sums, kLevelCounts);
  ZEN_SHARED(uint32_t, level1, 2 * kPlaneWords);
  ZEN_SHARED(uint32_t, level2, 2 * kPlaneWords);
  ZEN_SHARED(uint8_t, exponents, kChunkValues);
  const Place place = place_of_block(count);
  const PackJob& job = jobs[place.job];
  const uint64_t chunks = job.count.chunks();
  if (job.out == nullptr || place.tile >= (chunks == 0 ? 1 : chunks)) return;
  if (place.tile == 0 && threadIdx.x < job.count.tail() * sizeof(T))
    job.out[chunks * kEntryBytes + job.bodies[chunks] + threadIdx.x] =
        job.values[job.count.blocks() * kBlockValues * sizeof(T) + threadIdx.x];
  if (place.tile >= chunks) return;
  const uint64_t entry = job.entries[place.tile];
  if (threadIdx.x == 0) reinterpret_cast<uint64_t*>(job.out)[place.tile] = entry;
  const unsigned blocks = job.count.blocks_of(place.tile);
  const std::byte* values = job.values + place.tile * kChunkValues * sizeof(T);
  std::byte* body = job.out + chunks * kEntryBytes + job.bodies[place.tile];
  if (code_of(entry) == kRawChunk)
    return copy_bytes(body, values, blocks * kBlockValues * sizeof(T));
  const Code& code = tables->codes[code_of(entry)];
  const packing::CodeTables& table = tables->tables[code_of(entry)];
  for (unsigned word = threadIdx.x; word < 2 * kPlaneWords; word += kTileSlots)
    level1[word] = level2[word] = 0;
  count_sent_on<T>(code, table, values, blocks, sums);
  sum_blocks(sums, 0, kLevels, blocks);
  const Past past = past_of(sums);
  const BodyLayout at(DTypeOf<T>::value, code, blocks, past);
  const Sent sent{level1, level2, exponents};
  for (unsigned block = threadIdx.x / kWarpLanes; block < blocks; block += kWarps)
    write_block<T>(code, table, values, block, at, sums, sent, body);
  __syncthreads();
  append_streams(code, at, past, sent, body);
}

}  // namespace

void pack_measure(DType dtype, const CodeTables* tables, const PackJob* jobs, unsigned count,
                  uint64_t most_chunks, cudaStream_t stream) {
  if (most_chunks == 0) return;
  with_type(dtype, [&]<class T>(T) {
    launch(measure_chunk<T>, dim3(static_cast<unsigned>(most_chunks * count)), dim3(kTileSlots), 0,
           stream, tables, jobs, count);
  });
  check_launch("measure_chunk");
}

void pack_write(DType dtype, const CodeTables* tables, const PackJob* jobs, unsigned count,
                uint64_t most_chunks, cudaStream_t stream) {
  const uint64_t chunks = most_chunks == 0 ? 1 : most_chunks;
  with_type(dtype, [&]<class T>(T) {
    launch(write_chunk<T>, dim3(static_cast<unsigned>(chunks * count)), dim3(kTileSlots), 0, stream,
           tables, jobs, count);
  });
  check_launch("write_chunk");
}

}  // namespace zen::cuda
