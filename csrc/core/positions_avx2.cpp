// Elias-Fano lists of positions, a slot at a time and without a branch on the data.
//
// With low parts of at most 5 bits a slot is 64 >> width high parts ("chunks"), so its part of the
// high string holds that many zeros, and a one for each listed element before the zero that ends
// its chunk. PDEP and PEXT move whole bit strings between that and masks; see each function.
#include <bit>
#include <cstring>

#include "core/bits.h"
#include "core/position_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "core/avx2_target.h"

ZEN_BEGIN_AVX2
namespace zen {

namespace {

constexpr uint64_t kEachByte = 0x0101010101010101u;

// Ones `stride` bits apart, as many as whole strides fit in `bits`.
constexpr uint64_t ones_apart(unsigned stride, unsigned bits = 64) {
  uint64_t mask = 0;
  for (unsigned bit = 0; bit + stride <= bits; bit += stride) mask |= uint64_t{1} << bit;
  return mask;
}

// Bit e is bit `plane` of the number e.
constexpr uint64_t kIndexPlanes[5] = {0xaaaaaaaaaaaaaaaau, 0xccccccccccccccccu, 0xf0f0f0f0f0f0f0f0u,
                                      0xff00ff00ff00ff00u, 0xffff0000ffff0000u};

// Appends bit strings to words; drops what lies past `end`, where only zeros may lie.
class BitAppender {
 public:
  BitAppender(uint64_t* begin, uint64_t* end) : out_(begin), end_(end) {}

  // REQUIRES: count <= 64; bits above `count` are 0.
  void append(uint64_t bits, unsigned count) {
    word_ |= bits << used_;
    used_ += count;
    if (used_ < 64) return;
    flush();
    used_ -= 64;
    word_ = used_ == 0 ? 0 : bits >> (count - used_);
  }

  void finish() {
    if (used_ != 0) flush();
    while (out_ != end_) *out_++ = 0;
  }

 private:
  void flush() {
    if (out_ != end_) *out_++ = word_;
  }

  uint64_t *out_, *end_;
  uint64_t word_ = 0;
  unsigned used_ = 0;
};

// The low parts of the elements in `mask`. PEXT leaves of each index plane the bits of the listed
// elements, one after another; PDEP puts them `width` apart.
template <unsigned width>
void append_low(uint64_t mask, unsigned count, BitAppender& low) {
  if constexpr (width > 0) {
    constexpr unsigned kPerWord = 64 / width;
    constexpr uint64_t kLowest = ones_apart(width);
    uint64_t planes[width];
    for (unsigned plane = 0; plane < width; ++plane)
      planes[plane] = _pext_u64(kIndexPlanes[plane], mask);
    for (;;) {
      uint64_t bits = 0;
      for (unsigned plane = 0; plane < width; ++plane)
        bits |= _pdep_u64(planes[plane], kLowest << plane);
      if (count <= kPerWord) return low.append(bits, count * width);
      low.append(bits, kPerWord * width);
      count -= kPerWord;
      // With one plane a word holds all 64 elements, and the loop has ended.
      for (unsigned plane = 0; plane < width; ++plane) planes[plane] >>= kPerWord % 64;
    }
  }
}

// Where the ends of the chunks lie when half a slot, 32 elements, has a bit more behind each chunk.
template <unsigned width>
constexpr uint64_t chunk_ends() {
  uint64_t ends = 0;
  constexpr unsigned step = (1u << width) + 1;
  for (unsigned chunk = 1; chunk <= 32u >> width; ++chunk)
    ends |= uint64_t{1} << (chunk * step - 1);
  return ends;
}

// Ones for the elements and a zero for each end of a chunk, in their order: what PEXT leaves of a
// string that is 0 at the ends.
template <unsigned width>
void append_high_half(uint64_t half_mask, BitAppender& high) {
  constexpr uint64_t ends = chunk_ends<width>();
  const uint64_t kept = _pdep_u64(half_mask, ~ends) | ends;
  high.append(_pext_u64(~ends, kept), static_cast<unsigned>(std::popcount(kept)));
}

template <unsigned width>
void write_slots(const ShardSelection& selection, const EliasFano& layout, uint64_t* out) {
  uint64_t* const high_begin = out + layout.low_words();
  BitAppender low(out, high_begin), high(high_begin, out + layout.words());
  const uint64_t* presence = selection.presence_bits();
  const uint64_t* mask = selection.mask_list();
  const uint64_t* const end = mask + selection.present_words;
  for (uint64_t slot = 0; slot < selection.shard.slots && mask != end; ++slot) {
    const uint64_t present = presence[slot / 64] >> slot % 64 & 1;
    const uint64_t elements = *mask & (0 - present);
    mask += present;
    append_low<width>(elements, static_cast<unsigned>(std::popcount(elements)), low);
    append_high_half<width>(elements & 0xffffffffu, high);
    append_high_half<width>(elements >> 32, high);
  }
  low.finish();
  high.finish();
}

struct Lists {
  const std::byte* low;
  const std::byte* high;
  const std::byte* end;  // of the memory that may be read
  uint64_t count;
};

uint64_t load(const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, 8);
  return word;
}

// At least 57 bits from `bit` on. REQUIRES: 8 bytes from bit / 8 on may be read.
uint64_t load_bits(const std::byte* string, uint64_t bit) {
  return load(string + bit / 8) >> bit % 8;
}

// Bytes 0, 1, 2, ... of the result: the places of the ones in `flags`, a byte.
uint64_t places_of_ones(uint64_t flags) {
  return _pext_u64(0x0706050403020100u, _pdep_u64(flags, kEachByte) * 0xff);
}

// What a slot turned out to be.
struct Slot {
  uint64_t mask;
  uint64_t high_bits;  // of the high string, the last zero included
  uint64_t numbers;    // ones among them; more than the mask has only if there is disorder
  uint64_t disorder;   // not 0 if the places did not ascend strictly
};

// A one at each place. `places` has one in each byte, 64 or more for an unused byte.
__m256i ones_at(uint64_t places) {
  const __m128i bytes = _mm_cvtsi64_si128(static_cast<long long>(places));
  const __m256i one = _mm256_set1_epi64x(1);  // a shift by 64 or more leaves nothing
  return _mm256_or_si256(_mm256_sllv_epi64(one, _mm256_cvtepu8_epi64(bytes)),
                         _mm256_sllv_epi64(one, _mm256_cvtepu8_epi64(_mm_srli_si128(bytes, 4))));
}

uint64_t combine(__m256i parts) {
  const __m128i pair =
      _mm_or_si128(_mm256_castsi256_si128(parts), _mm256_extracti128_si256(parts, 1));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(pair) | _mm_extract_epi64(pair, 1));
}

// Reads a slot whose part of the high string is `ones` and a zero behind its `bits` bits, eight
// bits at a time: a one at place p after r ones of its eight lies p - r chunks further than the
// first.
template <unsigned width>
Slot read_slot(const Lists& lists, uint64_t ones, unsigned bits, uint64_t index) {
  constexpr uint64_t kTops = kEachByte * 0x80;
  __m256i parts = _mm256_setzero_si256();
  uint64_t chunk_begin = 0, least = 0, disorder = 0;
  for (unsigned done = 0;;) {
    const uint64_t flags = ones & 0xff;
    const auto count = static_cast<unsigned>(std::popcount(flags));
    const uint64_t unused = kTops << 4 * count << 4 * count;
    uint64_t places =
        chunk_begin * kEachByte + ((places_of_ones(flags) - places_of_ones(0xff)) << width);
    if constexpr (width > 0)
      places += _pdep_u64(load_bits(lists.low, index * width), kEachByte * ((1u << width) - 1));
    parts = _mm256_or_si256(parts, ones_at(places | unused));
    // Byte by byte, place - (place before + 1) must not borrow from the bit above.
    const uint64_t next = (places & ~kTops) + kEachByte;
    const uint64_t bounds = next << 8 | least;
    disorder |= ~((places | kTops) - bounds) & (kTops ^ unused);
    least = count == 8 ? next >> 56 : bounds >> 8 * count & 0xff;
    done += 8;
    if (done >= bits)
      return {combine(parts), bits + uint64_t{1}, bits + 1 - (64u >> width), disorder};
    ones >>= 8;
    index += count;
    chunk_begin += uint64_t{8 - count} << width;
  }
}

// The same for low parts of 2 bits, all elements of the slot at once, because such a slot has many.
// `planes[b]` has bit b of each low part.
Slot read_slot_by_planes(const Lists& lists, uint64_t ones, unsigned bits, uint64_t index) {
  const uint64_t numbers = bits + 1 - 16;
  uint64_t planes[2] = {};
  constexpr unsigned kPerLoad = 28;
  for (unsigned done = 0; done < numbers; done += kPerLoad) {
    const uint64_t low = load_bits(lists.low, (index + done) * 2);
    planes[0] |= _pext_u64(low, ones_apart(2, 2 * kPerLoad)) << done;
    planes[1] |= _pext_u64(low, ones_apart(2, 2 * kPerLoad) << 1) << done;
  }
  const uint64_t equal[4] = {~planes[1] & ~planes[0], ~planes[1] & planes[0],
                             planes[1] & ~planes[0], planes[1] & planes[0]};
  const uint64_t ends = ~ones & low_bits(bits + 1);
  uint64_t mask = 0;
  for (unsigned value = 0; value < 4; ++value) {
    // Adding a one to a run of ones carries to the zero behind it, the end of the chunk.
    const uint64_t at_ends = (ones + _pdep_u64(equal[value], ones)) & ends;
    mask |= _pdep_u64(_pext_u64(at_ends, ends), ones_apart(4)) << value;
  }
  // Bit j: element j + 1 has the larger low part, or is in the same chunk.
  const uint64_t after[2] = {planes[0] >> 1, planes[1] >> 1};
  const uint64_t larger =
      (after[1] & ~planes[1]) | (~(after[1] ^ planes[1]) & after[0] & ~planes[0]);
  const uint64_t same_chunk = _pext_u64(ones >> 1, ones);
  return {mask, bits + uint64_t{1}, numbers, same_chunk & ~larger};
}

bool byte_bit(const std::byte* string, uint64_t bit) {
  return (std::to_integer<unsigned>(string[bit / 8]) >> bit % 8 & 1) != 0;
}

// The same bit by bit, for a slot that does not fit a word and for the last bytes of the lists.
template <unsigned width>
Slot read_slot_by_bits(const Lists& lists, uint64_t high_bit, uint64_t index) {
  Slot slot{0, 0, 0, 0};
  uint64_t least = 0;
  for (uint64_t chunk = 0; chunk < 64u >> width && index < lists.count; ++slot.high_bits) {
    if (!byte_bit(lists.high, high_bit + slot.high_bits)) {
      ++chunk;
      continue;
    }
    uint64_t place = chunk << width;
    for (unsigned bit = 0; bit < width; ++bit)
      place |= uint64_t{byte_bit(lists.low, index * width + bit)} << bit;
    slot.disorder |= place < least;
    least = place + 1;
    slot.mask |= uint64_t{1} << place;
    ++index;
    ++slot.numbers;
  }
  return slot;
}

// Reads the slot that begins at `high_bit`, with `index` numbers before it.
template <unsigned width>
Slot next_slot(const Lists& lists, uint64_t high_bit, uint64_t index) {
  // A slot of up to 57 numbers reads at most 8 bytes from its last eight low parts.
  constexpr int64_t kLowReach = (57 * width) / 8 + 8;
  if (lists.end - (lists.high + high_bit / 8) < 8 ||
      lists.end - (lists.low + index * width / 8) < kLowReach)
    return read_slot_by_bits<width>(lists, high_bit, index);
  const uint64_t bits = load_bits(lists.high, high_bit);
  constexpr uint64_t kLastZero = uint64_t{1} << ((64u >> width) - 1);
  const auto length = static_cast<unsigned>(std::countr_zero(_pdep_u64(kLastZero, ~bits)));
  if (length + high_bit % 8 >= 64) [[unlikely]]
    return read_slot_by_bits<width>(lists, high_bit, index);
  const uint64_t ones = _bzhi_u64(bits, length);
  if constexpr (width == 2)
    return read_slot_by_planes(lists, ones, length, index);
  else
    return read_slot<width>(lists, ones, length, index);
}

template <unsigned width>
uint64_t read_slots(const IndexView& index, const EliasFano& layout, uint64_t* presence,
                    uint64_t* masks) {
  const auto* low = reinterpret_cast<const std::byte*>(index.words.data());
  const Lists lists{low, low + layout.low_words() * 8, low + layout.bytes(), layout.count()};
  const uint64_t limit = index.header.present_words;
  uint64_t high_bit = 0, index_of_next = 0, used = 0, disorder = 0;
  for (uint64_t slot = 0; index_of_next < lists.count; ++slot) {
    const Slot found = next_slot<width>(lists, high_bit, index_of_next);
    high_bit += found.high_bits;
    index_of_next += found.numbers;
    disorder |= found.disorder;
    masks[used] = found.mask;
    used += found.mask != 0;
    if (used > limit) reject_field("number of present words", used, limit);
    presence[slot / 64] |= uint64_t{found.mask != 0} << slot % 64;
  }
  if (disorder != 0) throw MalformedMessage("malformed message: the positions do not ascend");
  return used;
}

}  // namespace

void write_positions_avx2(const ShardSelection& selection, const EliasFano& layout, uint64_t* out) {
  switch (layout.low_width()) {
    case 0:
      return write_slots<0>(selection, layout, out);
    case 1:
      return write_slots<1>(selection, layout, out);
    case 2:
      return write_slots<2>(selection, layout, out);
    case 3:
      return write_slots<3>(selection, layout, out);
    case 4:
      return write_slots<4>(selection, layout, out);
    default:
      return write_slots<5>(selection, layout, out);
  }
}

uint64_t read_positions_avx2(const IndexView& index, const EliasFano& layout, uint64_t* presence,
                             uint64_t* masks) {
  switch (layout.low_width()) {
    case 2:
      return read_slots<2>(index, layout, presence, masks);
    case 3:
      return read_slots<3>(index, layout, presence, masks);
    case 4:
      return read_slots<4>(index, layout, presence, masks);
    default:
      return read_slots<5>(index, layout, presence, masks);
  }
}

}  // namespace zen
ZEN_END_AVX2

#else

namespace zen {

void write_positions_avx2(const ShardSelection&, const EliasFano&, uint64_t*) {}

uint64_t read_positions_avx2(const IndexView&, const EliasFano&, uint64_t*, uint64_t*) {
  return 0;
}

}  // namespace zen

#endif
