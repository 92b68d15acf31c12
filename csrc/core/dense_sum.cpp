#include "core/dense_sum.h"

#include <algorithm>
#include <array>
#include <string>

#include "core/error.h"

namespace zen {

namespace {

constexpr size_t kBlock = 1024;  // partial sums that stay in the nearest cache

template <class T>
void add_arrays(std::span<const Buffer> arrays, float divisor, const Buffer& result) {
  const size_t count = result.bytes / sizeof(T);
  std::array<float, kBlock> sums;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t length = std::min(kBlock, count - begin);
    std::fill_n(sums.begin(), length, 0.0f);
    for (const Buffer& array : arrays) {
      const T* values = reinterpret_cast<const T*>(array.data) + begin;
      for (size_t i = 0; i < length; ++i) sums[i] += to_float(values[i]);
    }
    T* out = reinterpret_cast<T*>(result.data) + begin;
    for (size_t i = 0; i < length; ++i) out[i] = from_float<T>(sums[i] / divisor);
  }
}

}  // namespace

void check_lengths(std::span<const Buffer> arrays, const Buffer& result) {
  for (const Buffer& array : arrays)
    if (array.bytes != result.bytes)
      throw InvalidArgument("an array of " + std::to_string(array.bytes) +
                            " bytes cannot be added to one of " + std::to_string(result.bytes));
}

void dense_sum(std::span<const Buffer> arrays, DType dtype, float divisor, const Buffer& result) {
  check_lengths(arrays, result);
  with_type(dtype, [&]<class T>(T) { add_arrays<T>(arrays, divisor, result); });
}

}  // namespace zen
