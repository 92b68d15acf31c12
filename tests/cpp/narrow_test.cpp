#include "core/narrow.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"
#include "core/select.h"
#include "oracle.h"

namespace zen::test {
namespace {

// Every kind of value, and ties in both directions; none is zero.
float value_at(uint64_t elem) {
  constexpr float kSpecial[] = {std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::max(),
                                std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::denorm_min(),
                                1.00390625f,
                                1.01171875f};
  return elem % 7 < 6 ? kSpecial[elem % 7] : static_cast<float>(elem) * 0.37f;
}

TEST(Narrow, values_are_rounded_once_and_stay_listed) {
  for (const uint64_t count : {0u, 1u, 1023u, 1024u, 1025u, 5000u})
    for (const Isa isa : supported_isas()) {
      TestGradient gradient(DType::f32, count);
      for (uint64_t elem = 0; elem < count; ++elem) gradient.set(elem, value_at(elem));
      const auto placement = Placement::make(PlacementKind::whole, count, 1, 0);
      Selection selection = select(gradient.view(), *placement, placement->all(), heap_buffer);
      narrow_values(selection[0], DType::bf16, isa);
      EXPECT_EQ(selection[0].dtype, DType::bf16);
      const Lists lists = lists_of(selection[0]);
      ASSERT_EQ(lists.size(), count);
      Lists expected;
      for (uint64_t elem = 0; elem < count; ++elem)
        expected[elem] = to_bits(DType::bf16, value_at(elem));
      expect_same(lists, expected, DType::bf16);

      const Shard shard = placement->shard(0, placement->all());
      OpenMessage message = open_message(lists, shard, DType::bf16);
      widen_values(message, heap_buffer);
      EXPECT_EQ(message.header.dtype, DType::f32);
      for (uint64_t elem = 0; elem < count; ++elem) {
        const uint32_t bits = reinterpret_cast<const uint32_t*>(message.values)[elem];
        EXPECT_EQ(bits, lists.at(elem) << 16) << "element " << elem;
      }
    }
}

TEST(Narrow, only_float32_can_be_narrowed) {
  TestGradient gradient(DType::f16, 10);
  const auto placement = Placement::make(PlacementKind::whole, 10, 1, 0);
  Selection selection = select(gradient.view(), *placement, placement->all(), heap_buffer);
  EXPECT_NO_THROW(narrow_values(selection[0], DType::f16));
  EXPECT_THROW(narrow_values(selection[0], DType::bf16), InvalidArgument);
}

}  // namespace
}  // namespace zen::test
