// Element types of gradients, and their exact conversions to and from float.
// Conversions use integer arithmetic only, so that every device produces the same bits: kernels of
// cuda/ call these very functions, which is why they are constexpr.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace zen {

enum class DType : uint8_t {
  f32 = 0,
  f16 = 1,
  bf16 = 2
};  // the numbers are part of the wire format

constexpr size_t size_of(DType dtype) {
  return dtype == DType::f32 ? 4 : 2;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float32";
    case DType::f16:
      return "float16";
    case DType::bf16:
      return "bfloat16";
  }
  return "unknown";
}

struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::bf16;
};

// Calls `f` with a value of the C++ type that stands for `dtype`.
template <class F>
decltype(auto) with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f16:
      return f(f16{});
    case DType::bf16:
      return f(bf16{});
    case DType::f32:
      break;
  }
  return f(float{});
}

constexpr float to_float(float x) {
  return x;
}

constexpr float to_float(bf16 x) {
  return std::bit_cast<float>(uint32_t{x.bits} << 16);
}

constexpr float to_float(f16 x) {
  const uint32_t sign = uint32_t{x.bits} >> 15 << 31;
  uint32_t exponent = (x.bits >> 10) & 0x1f, mantissa = x.bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent == 0) {
    if (mantissa == 0) return std::bit_cast<float>(sign);
    // A subnormal half is a normal float: shift its leading one up to bit 10.
    const int shift = std::countl_zero(mantissa) - 21;
    mantissa = (mantissa << shift) & 0x3ffu;
    exponent = 1u - static_cast<uint32_t>(shift);
  }
  return std::bit_cast<float>(sign | (exponent + 112u) << 23 | mantissa << 13);
}

// Round to nearest, ties to even. NaN stays NaN (quiet, payload truncated).
template <class T>
constexpr T from_float(float x);

template <>
constexpr float from_float<float>(float x) {
  return x;
}

template <>
constexpr bf16 from_float<bf16>(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

template <>
constexpr f16 from_float<f16>(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>(bits >> 31 << 15);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return {static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu))};
  if (magnitude >= 0x477ff000u)
    return {static_cast<uint16_t>(sign | 0x7c00u)};  // rounds past 65504
  if (magnitude >= 0x38800000u) {                    // normal half
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
  }
  if (magnitude < 0x33000000u) return {sign};       // below half of the smallest subnormal
  const uint32_t shift = 126u - (magnitude >> 23);  // 14 (largest subnormal) to 24
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t rest = mantissa & ((1u << shift) - 1u), half = 1u << (shift - 1);
  uint32_t result = mantissa >> shift;
  if (rest > half || (rest == half && (result & 1u))) ++result;
  return {static_cast<uint16_t>(sign | result)};
}

}  // namespace zen
