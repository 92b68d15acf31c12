// The packing kernels in plain C++: the reference for every faster one, and all that other
// processors than x86-64 have.
#include <algorithm>
#include <cstring>

#include "core/value_packing_chunk.h"

namespace zen::packing {

namespace {

// One block of a dtype's values, value by value.
template <DType dtype>
struct Block {
  static constexpr Split split = split_of(dtype);
  static constexpr int sign_shift = split.mantissa_bits + split.exponent_bits;
  static constexpr int low_bytes = split.fraction_bytes();

  static uint32_t load(const std::byte* values, size_t elem) {
    uint32_t bits = 0;
    std::memcpy(&bits, values + elem * size_of(dtype), size_of(dtype));
    return bits;
  }

  static uint32_t exponent(const std::byte* values, size_t elem) {
    return load(values, elem) >> split.mantissa_bits & split.exponent_mask();
  }

  static uint32_t largest_exponent(const std::byte* values) {
    uint32_t largest = 0;
    for (size_t elem = 0; elem < kBlockValues; ++elem)
      largest = std::max(largest, exponent(values, elem));
    return largest;
  }

  static void store_fractions(const std::byte* values, std::byte* out) {
    std::memset(out, 0, split.block_bytes());
    std::byte* planes = out + kBlockValues * low_bytes;
    for (size_t elem = 0; elem < kBlockValues; ++elem) {
      const uint32_t bits = load(values, elem);
      const uint32_t fraction =
          bits >> sign_shift << split.mantissa_bits | (bits & split.mantissa_mask());
      std::memcpy(out + elem * low_bytes, &fraction, low_bytes);
      for (int plane = 0; plane < split.fraction_planes(); ++plane)
        planes[8 * plane + elem / 8] |=
            static_cast<std::byte>((fraction >> (8 * low_bytes + plane) & 1) << elem % 8);
    }
  }

  static uint32_t load_fraction(const std::byte* fractions, size_t elem) {
    const std::byte* planes = fractions + kBlockValues * low_bytes;
    uint32_t fraction = 0;
    std::memcpy(&fraction, fractions + elem * low_bytes, low_bytes);
    for (int plane = 0; plane < split.fraction_planes(); ++plane)
      fraction |= (std::to_integer<uint32_t>(planes[8 * plane + elem / 8]) >> elem % 8 & 1)
                  << (8 * low_bytes + plane);
    return fraction;
  }

  static void store(uint32_t exponent, uint32_t fraction, std::byte* values, size_t elem) {
    const uint32_t bits = fraction >> split.mantissa_bits << sign_shift |
                          (exponent & split.exponent_mask()) << split.mantissa_bits |
                          (fraction & split.mantissa_mask());
    std::memcpy(values + elem * size_of(dtype), &bits, size_of(dtype));
  }
};

void append_bit(std::byte* plane, size_t at, uint32_t bit) {
  if (at % 8 == 0) plane[at / 8] = std::byte{0};
  plane[at / 8] |= static_cast<std::byte>(bit << at % 8);
}

int read_bit(const std::byte* plane, size_t at) {
  return std::to_integer<int>(plane[at / 8]) >> at % 8 & 1;
}

// Writes one value's digits, level by level; returns whether the last level sends it on.
bool pack_digits(const Code& code, uint32_t digits, size_t elem, uint64_t (&planes)[2],
                 Streams& streams) {
  for (int level = 0; level < kLevels; ++level) {
    const uint32_t digit = digits >> 2 * level & 3;
    for (int plane = 0; plane < code.width[level]; ++plane) {
      const uint32_t bit = digit >> plane & 1;
      if (level == 0)
        planes[plane] |= uint64_t{bit} << elem;
      else
        append_bit(streams.level[level][plane], streams.past[level - 1] - 1u, bit);
    }
    if (digit != static_cast<uint32_t>(code.full(level))) return false;
    ++streams.past[level];
  }
  return true;
}

template <DType dtype>
void pack_block(size_t code, const std::byte* values, size_t block, const BodyLayout& at,
                std::byte* body, Streams& streams) {
  using Values = Block<dtype>;
  Values::store_fractions(values, body + at.fractions + block * Values::split.block_bytes());
  const uint32_t largest = Values::largest_exponent(values);
  streams.largest[block] = static_cast<uint8_t>(largest);
  uint64_t planes[2] = {0, 0};
  for (size_t elem = 0; elem < kBlockValues; ++elem) {
    const uint32_t exponent = Values::exponent(values, elem);
    const uint32_t delta = std::min<uint32_t>(largest - exponent, kDeltas - 1);
    if (pack_digits(kCodes[code], kTables[code].digits[delta], elem, planes, streams))
      streams.exponents[streams.past[2] - 1] = static_cast<uint8_t>(exponent);
  }
  const size_t plane_bytes = 8u * kCodes[code].width[0];
  std::memcpy(body + at.planes + plane_bytes * block, planes, plane_bytes);
}

// Reads values' digits, level by level.
class DigitReader {
 public:
  DigitReader(const Code& code, const std::byte* body, const BodyLayout& at, const Past& past)
      : code_(code), past_(past), planes_{body + at.planes, body + at.level1, body + at.level2} {}

  struct Rank {
    int rank = 0;
    bool sent_on = false;  // by the last level
  };

  // The next value; `elem` counts from the chunk's beginning.
  Rank next(size_t elem) {
    Rank result;
    for (int level = 0; level < kLevels; ++level) {
      const int digit = level == 0 ? block_digit(elem) : stream_digit(level);
      result.rank += digit;
      if (digit != code_.full(level)) return result;
      ++used_[level];
    }
    result.sent_on = true;
    return result;
  }

  size_t exponents() const { return used_[kLevels - 1]; }
  bool complete() const { return used_ == past_; }

 private:
  // Level 0 has its planes block by block, ...
  int block_digit(size_t elem) const {
    const size_t width = code_.width[0];
    const size_t bit = elem / kBlockValues * kBlockValues * width + elem % kBlockValues;
    int digit = read_bit(planes_[0], bit);
    if (width == 2) digit |= read_bit(planes_[0], bit + kBlockValues) << 1;
    return digit;
  }

  // ... the deeper ones have them one behind the other.
  int stream_digit(int level) const {
    const size_t bit = used_[level - 1] - 1u;
    int digit = read_bit(planes_[level], bit);
    if (code_.width[level] == 2)
      digit |= read_bit(planes_[level], bit + 8 * BodyLayout::plane_bytes(past_[level - 1])) << 1;
    return digit;
  }

  const Code& code_;
  const Past past_;
  const std::byte* planes_[kLevels];
  Past used_{};
};

template <DType dtype>
void pack_blocks(size_t code, const std::byte* values, size_t blocks, std::byte* body,
                 Streams& streams) {
  streams.past = {};
  const BodyLayout at(dtype, kCodes[code], blocks, {});
  for (size_t block = 0; block < blocks; ++block)
    pack_block<dtype>(code, values + block * kBlockValues * size_of(dtype), block, at, body,
                      streams);
}

template <DType dtype>
bool unpack_blocks(size_t code, const std::byte* body, size_t blocks, const Past& past,
                   std::byte* values) {
  using Values = Block<dtype>;
  const BodyLayout at(dtype, kCodes[code], blocks, past);
  DigitReader digits(kCodes[code], body, at, past);
  for (size_t elem = 0; elem < blocks * kBlockValues; ++elem) {
    const size_t block = elem / kBlockValues;
    const auto [rank, sent_on] = digits.next(elem);
    const uint32_t exponent =
        sent_on ? std::to_integer<uint32_t>(body[at.exponents + digits.exponents() - 1])
                : std::to_integer<uint32_t>(body[at.largest + block]) - kTables[code].deltas[rank];
    const std::byte* fractions = body + at.fractions + block * Values::split.block_bytes();
    Values::store(exponent, Values::load_fraction(fractions, elem % kBlockValues), values, elem);
  }
  return digits.complete();
}

template <DType dtype>
DeltaCounts count_deltas(const std::byte* values, size_t blocks, size_t stride) {
  DeltaCounts counts{};
  for (size_t block = 0; block < blocks; block += stride) {
    const std::byte* in = values + block * kBlockValues * size_of(dtype);
    const uint32_t largest = Block<dtype>::largest_exponent(in);
    for (size_t elem = 0; elem < kBlockValues; ++elem) {
      const uint32_t delta = largest - Block<dtype>::exponent(in, elem);
      if (delta < counts.size()) ++counts[delta];
    }
  }
  return counts;
}

}  // namespace

Kernels kernels_scalar(DType dtype) {
  return with_type(dtype, []<class T>(T) -> Kernels {
    constexpr DType type = DTypeOf<T>::value;
    return {count_deltas<type>, pack_blocks<type>, unpack_blocks<type>};
  });
}

}  // namespace zen::packing
