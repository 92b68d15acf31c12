#include "core/dense_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/error.h"

namespace zen {
namespace {

template <class T>
void expect_plain_sums(size_t count, int arrays, float divisor) {
  std::mt19937 random(count * 7 + static_cast<size_t>(arrays));
  std::vector<std::vector<T>> values(static_cast<size_t>(arrays), std::vector<T>(count));
  std::vector<Buffer> buffers;
  for (auto& array : values) {
    for (T& value : array) value = from_float<T>(std::normal_distribution<float>()(random));
    buffers.push_back({reinterpret_cast<std::byte*>(array.data()), count * sizeof(T), nullptr});
  }
  std::vector<T> expected(count);
  for (size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (const auto& array : values) sum += to_float(array[i]);
    expected[i] = from_float<T>(sum / divisor);
  }
  dense_sum(buffers, DTypeOf<T>::value, divisor, buffers.back());  // into one of its inputs
  for (size_t i = 0; i < count; ++i)
    ASSERT_EQ(std::memcmp(&values.back()[i], &expected[i], sizeof(T)), 0)
        << "element " << i << " of " << count << " elements, " << arrays << " arrays";
}

TEST(DenseSum, adds_in_order_in_float32_and_rounds_once) {
  for (const size_t count : {0, 1, 63, 1023, 1024, 1025, 4099})
    for (const int arrays : {1, 2, 3, 8}) {
      expect_plain_sums<float>(count, arrays, 1);
      expect_plain_sums<float>(count, arrays, 3);
      expect_plain_sums<f16>(count, arrays, 3);
      expect_plain_sums<bf16>(count, arrays, 3);
    }
}

TEST(DenseSum, zeros_lose_their_sign_and_infinities_stay) {
  float a[] = {-0.0f, INFINITY, INFINITY, 1}, b[] = {-0.0f, 1, -INFINITY, NAN}, sum[4];
  const auto buffer = [](float* values) {
    return Buffer{reinterpret_cast<std::byte*>(values), 16, nullptr};
  };
  const Buffer arrays[] = {buffer(a), buffer(b)};
  dense_sum(arrays, DType::f32, 1, buffer(sum));
  EXPECT_FALSE(std::signbit(sum[0]));
  EXPECT_EQ(sum[1], INFINITY);
  EXPECT_TRUE(std::isnan(sum[2]));
  EXPECT_TRUE(std::isnan(sum[3]));
}

TEST(DenseSum, lengths_must_agree) {
  float a[2] = {}, b[1] = {};
  const Buffer arrays[] = {{reinterpret_cast<std::byte*>(a), 8, nullptr}};
  EXPECT_THROW(dense_sum(arrays, DType::f32, 1, {reinterpret_cast<std::byte*>(b), 4, nullptr}),
               InvalidArgument);
}

}  // namespace
}  // namespace zen
