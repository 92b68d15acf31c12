// The packing kernels for AVX2: a bit plane is a byte mask's movemask, and the short planes of the
// deeper levels are what PEXT leaves of it (PDEP on the way back).
#include <cstring>

#include "core/value_packing_chunk.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "core/avx2_target.h"

ZEN_BEGIN_AVX2
#include "core/value_packing_avx2_blocks.h"

namespace zen::packing {

namespace {

// The largest of 64 bytes, in all 16 bytes of the result.
__m128i largest_of(const Bytes& bytes) {
  const __m256i m = _mm256_max_epu8(bytes.half[0], bytes.half[1]);
  const __m128i ones = _mm_set1_epi8(-1);
  // minpos finds the least of eight 16-bit words, so look for the least complement.
  __m128i least =
      _mm_xor_si128(_mm_max_epu8(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1)), ones);
  least = _mm_minpos_epu16(_mm_min_epu8(least, _mm_srli_epi16(least, 8)));
  return _mm_xor_si128(_mm_broadcastb_epi8(least), ones);
}

Bytes deltas_of(const Bytes& exponents, __m128i largest) {
  const __m256i all = _mm256_broadcastsi128_si256(largest);
  return {{_mm256_sub_epi8(all, exponents.half[0]), _mm256_sub_epi8(all, exponents.half[1])}};
}

// The bit strings of one level, `width` planes of equal length.
template <int width>
class PlaneWriter {
 public:
  explicit PlaneWriter(std::byte (*planes)[kPlaneRoom]) : planes_(planes) {}

  // Appends the low `count` bits of each plane. REQUIRES: the bits above are 0.
  void append(const uint64_t (&planes)[2], unsigned count) {
    if (count > 56) [[unlikely]] {  // with the 7 bits that may be pending, a word has no room
      append_short({uint32_t(planes[0]), uint32_t(planes[1])}, 32);
      return append_short({planes[0] >> 32, planes[1] >> 32}, count - 32);
    }
    append_short(planes, count);
  }

  uint16_t bits() const { return static_cast<uint16_t>(bits_); }

 private:
  void append_short(const uint64_t (&planes)[2], unsigned count) {
    const size_t whole = bits_ / 8;
    const unsigned pending = bits_ % 8;
    for (int plane = 0; plane < width; ++plane) {
      const uint64_t joined = pending_[plane] | planes[plane] << pending;
      store_word(planes_[plane] + whole, joined);
      pending_[plane] = joined >> ((pending + count) & ~7u);
    }
    bits_ += count;
  }

  std::byte (*planes_)[kPlaneRoom];
  uint64_t pending_[width] = {};  // what the last incomplete byte has so far
  size_t bits_ = 0;
};

// Walks along the bit strings that a PlaneWriter made.
template <int width>
class PlaneReader {
 public:
  PlaneReader(const std::byte* planes, size_t bits)
      : planes_(planes), stride_(BodyLayout::plane_bytes(bits)) {}

  // Puts the next bits of each plane at the places of the ones of `mask`.
  void deposit(uint64_t mask, uint64_t (&planes)[2]) {
    const auto count = static_cast<unsigned>(_mm_popcnt_u64(mask));
    for (int plane = 0; plane < width; ++plane) {
      const std::byte* at = planes_ + plane * stride_ + bits_ / 8;
      uint64_t next = load_word(at) >> bits_ % 8;
      if (count > 57) [[unlikely]]
        next |= std::to_integer<uint64_t>(at[8]) << 1 << (63 - bits_ % 8);
      planes[plane] = _pdep_u64(next, mask);
    }
    bits_ += count;
  }

  size_t bits() const { return bits_; }

 private:
  const std::byte* planes_;
  size_t stride_, bits_ = 0;
};

// The planes of one level for a whole block, from which the next level takes the values sent on.
template <int level, int width>
uint64_t block_planes(const Bytes& digits, uint64_t (&planes)[2]) {
  planes[0] = plane_of<2 * level>(digits);
  if constexpr (width == 1) return planes[0];
  planes[1] = plane_of<2 * level + 1>(digits);
  return planes[0] & planes[1];
}

template <int level, int width>
uint64_t pack_level(const Bytes& digits, uint64_t sent_on, PlaneWriter<width>& writer) {
  uint64_t planes[2];
  const uint64_t full = block_planes<level, width>(digits, planes);
  uint64_t taken[2] = {};
  for (int plane = 0; plane < width; ++plane) taken[plane] = _pext_u64(planes[plane], sent_on);
  writer.append(taken, static_cast<unsigned>(_mm_popcnt_u64(sent_on)));
  return full;
}

// Appends the exponents of the values in `sent_on`. Most blocks have at most two, so two are
// written in any case and the loop is hardly ever entered.
uint8_t* pack_exponents(const Bytes& exponents, uint64_t sent_on, uint8_t* out) {
  alignas(32) std::byte bytes[96];  // tzcnt of nothing is 64
  store(bytes, exponents.half[0]);
  store(bytes + 32, exponents.half[1]);
  uint8_t* const end = out + _mm_popcnt_u64(sent_on);
  const auto take = [&] {
    *out++ = static_cast<uint8_t>(bytes[_tzcnt_u64(sent_on)]);
    sent_on = _blsr_u64(sent_on);
  };
  bytes[64] = std::byte{0};
  take();
  take();
  while (sent_on) take();
  return end;
}

// Fetches the same block of the next chunk: count_deltas() jumps through a chunk before
// pack_blocks() reads it, which no hardware prefetcher follows.
template <DType dtype>
void prefetch(const std::byte* block) {
  const std::byte* next = block + kChunkValues * size_of(dtype);
  for (size_t line = 0; line < kBlockValues * size_of(dtype); line += 64)
    _mm_prefetch(reinterpret_cast<const char*>(next + line), _MM_HINT_T0);
}

template <DType dtype, int w0, int w1, int w2>
void pack_blocks(size_t code, const std::byte* values, size_t blocks, std::byte* body,
                 Streams& streams) {
  const BodyLayout at(dtype, kCodes[code], blocks, {});
  const __m256i digits_of = _mm256_broadcastsi128_si256(
      _mm_load_si128(reinterpret_cast<const __m128i*>(kTables[code].digits.data())));
  const __m256i clip = set1(kDeltas - 1);
  PlaneWriter<w1> level1(streams.level[1]);
  PlaneWriter<w2> level2(streams.level[2]);
  uint8_t* plain = streams.exponents;
  for (size_t block = 0; block < blocks; ++block) {
    prefetch<dtype>(values + block * kBlockValues * size_of(dtype));
    const Bytes exponents =
        Block<dtype>::split(values + block * kBlockValues * size_of(dtype),
                            body + at.fractions + block * split_of(dtype).block_bytes());
    const __m128i largest = largest_of(exponents);
    streams.largest[block] = static_cast<uint8_t>(_mm_extract_epi8(largest, 0));
    Bytes digits = deltas_of(exponents, largest);
    for (__m256i& half : digits.half)
      half = _mm256_shuffle_epi8(digits_of, _mm256_min_epu8(half, clip));
    uint64_t planes[2];
    const uint64_t past0 = block_planes<0, w0>(digits, planes);
    for (int plane = 0; plane < w0; ++plane)
      store_word(body + at.planes + 8 * (w0 * block + plane), planes[plane]);
    // A value that an upper level keeps has zeros in the levels below, so no mask is needed.
    const uint64_t past1 = pack_level<1, w1>(digits, past0, level1);
    const uint64_t past2 = pack_level<2, w2>(digits, past1, level2);
    plain = pack_exponents(exponents, past2, plain);
  }
  streams.past = {level1.bits(), level2.bits(), static_cast<uint16_t>(plain - streams.exponents)};
}

// Puts the level's next bits at the places of the values sent on; returns the all-ones among them.
template <int width>
uint64_t unpack_level(uint64_t sent_on, PlaneReader<width>& reader, uint64_t (&planes)[2]) {
  reader.deposit(sent_on, planes);
  return width == 1 ? planes[0] : planes[0] & planes[1];
}

// Adds the digits of all 64 values at once: the rank's four planes.
void add_digits(const uint64_t (&a)[2], const uint64_t (&b)[2], const uint64_t (&c)[2],
                uint64_t (&rank)[4]) {
  const uint64_t ones = a[0] ^ b[0], twos = a[1] ^ b[1];
  const uint64_t carry1 = (a[0] & b[0]) | (ones & c[0]);
  const uint64_t fours = (a[1] & b[1]) | (twos & c[1]), sum2 = twos ^ c[1];
  rank[0] = ones ^ c[0];
  rank[1] = sum2 ^ carry1;
  const uint64_t carry2 = sum2 & carry1;
  rank[2] = fours ^ carry2;
  rank[3] = fours & carry2;
}

Bytes bytes_of(const uint64_t (&planes)[4]) {
  Bytes bytes{{_mm256_setzero_si256(), _mm256_setzero_si256()}};
  for (int plane = 3; plane >= 0; --plane) {
    const __m256i word = _mm256_set1_epi64x(static_cast<int64_t>(planes[plane]));
    for (int half = 0; half < 2; ++half)  // doubles, and subtracts -1 where the plane has a one
      bytes.half[half] =
          _mm256_sub_epi8(_mm256_add_epi8(bytes.half[half], bytes.half[half]), spread(word, half));
  }
  return bytes;
}

// Overwrites the exponents of the values in `sent_on` with plain ones, in the finished block.
template <DType dtype>
const std::byte* patch_exponents(uint64_t sent_on, const std::byte* exponents, std::byte* values) {
  constexpr Split split = split_of(dtype);
  for (; sent_on; sent_on = _blsr_u64(sent_on)) {
    std::byte* value = values + _tzcnt_u64(sent_on) * size_of(dtype);
    uint32_t bits = 0;
    std::memcpy(&bits, value, size_of(dtype));
    bits &= ~(split.exponent_mask() << split.mantissa_bits);
    bits |= (std::to_integer<uint32_t>(*exponents++) & split.exponent_mask())
            << split.mantissa_bits;
    std::memcpy(value, &bits, size_of(dtype));
  }
  return exponents;
}

template <DType dtype, int w0, int w1, int w2>
bool unpack_blocks(size_t code, const std::byte* body, size_t blocks, const Past& past,
                   std::byte* values) {
  const BodyLayout at(dtype, kCodes[code], blocks, past);
  const __m256i deltas_of_ranks = _mm256_broadcastsi128_si256(
      _mm_load_si128(reinterpret_cast<const __m128i*>(kTables[code].deltas.data())));
  PlaneReader<w1> level1(body + at.level1, past[0]);
  PlaneReader<w2> level2(body + at.level2, past[1]);
  const std::byte* plain = body + at.exponents;
  for (size_t block = 0; block < blocks; ++block) {
    uint64_t digits[kLevels][2] = {};
    for (int plane = 0; plane < w0; ++plane)
      digits[0][plane] = load_word(body + at.planes + 8 * (w0 * block + plane));
    const uint64_t past0 = w0 == 1 ? digits[0][0] : digits[0][0] & digits[0][1];
    const uint64_t past1 = unpack_level<w1>(past0, level1, digits[1]);
    const uint64_t past2 = unpack_level<w2>(past1, level2, digits[2]);
    uint64_t rank[4];
    add_digits(digits[0], digits[1], digits[2], rank);
    const Bytes ranks = bytes_of(rank);
    const __m256i largest = set1(std::to_integer<int>(body[at.largest + block]));
    Bytes exponents;
    for (int half = 0; half < 2; ++half)
      exponents.half[half] =
          _mm256_sub_epi8(largest, _mm256_shuffle_epi8(deltas_of_ranks, ranks.half[half]));
    std::byte* out = values + block * kBlockValues * size_of(dtype);
    Block<dtype>::join(exponents, body + at.fractions + block * split_of(dtype).block_bytes(), out);
    plain = patch_exponents<dtype>(past2, plain, out);
  }
  return level1.bits() == past[0] && level2.bits() == past[1] &&
         plain == body + at.exponents + past[2];
}

template <DType dtype>
DeltaCounts count_deltas(const std::byte* values, size_t blocks, size_t stride) {
  __m256i sums[kRanks] = {};  // bytes: at most 2 per block, so never more than 128
  for (size_t block = 0; block < blocks; block += stride) {
    const Bytes exponents = Block<dtype>::exponents(values + block * kBlockValues * size_of(dtype));
    const Bytes deltas = deltas_of(exponents, largest_of(exponents));
    for (int delta = 0; delta < kRanks; ++delta)
      for (const __m256i& half : deltas.half)
        sums[delta] = _mm256_sub_epi8(sums[delta], _mm256_cmpeq_epi8(half, set1(delta)));
  }
  DeltaCounts counts;
  for (int delta = 0; delta < kRanks; ++delta) {
    alignas(32) uint64_t parts[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(parts),
                       _mm256_sad_epu8(sums[delta], _mm256_setzero_si256()));
    counts[delta] = static_cast<uint32_t>(parts[0] + parts[1] + parts[2] + parts[3]);
  }
  return counts;
}

template <DType dtype>
void pack_any_blocks(size_t code, const std::byte* values, size_t blocks, std::byte* body,
                     Streams& streams) {
  const auto& width = kCodes[code].width;
  if (width[0] == 2) return pack_blocks<dtype, 2, 2, 2>(code, values, blocks, body, streams);
  if (width[1] == 2) return pack_blocks<dtype, 1, 2, 2>(code, values, blocks, body, streams);
  return pack_blocks<dtype, 1, 1, 2>(code, values, blocks, body, streams);
}

template <DType dtype>
bool unpack_any_blocks(size_t code, const std::byte* body, size_t blocks, const Past& past,
                       std::byte* values) {
  const auto& width = kCodes[code].width;
  if (width[0] == 2) return unpack_blocks<dtype, 2, 2, 2>(code, body, blocks, past, values);
  if (width[1] == 2) return unpack_blocks<dtype, 1, 2, 2>(code, body, blocks, past, values);
  return unpack_blocks<dtype, 1, 1, 2>(code, body, blocks, past, values);
}

}  // namespace

Kernels kernels_avx2(DType dtype) {
  return with_type(dtype, []<class T>(T) -> Kernels {
    constexpr DType type = DTypeOf<T>::value;
    return {count_deltas<type>, pack_any_blocks<type>, unpack_any_blocks<type>};
  });
}

}  // namespace zen::packing
ZEN_END_AVX2

#else

namespace zen::packing {

Kernels kernels_avx2(DType dtype) {
  return kernels_scalar(dtype);
}

}  // namespace zen::packing

#endif
