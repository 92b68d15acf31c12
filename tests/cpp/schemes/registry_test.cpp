#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "schemes/exchange.h"

namespace zen {
namespace {

TEST(Registry, every_scheme_is_found_by_its_name) {
  std::set<std::string_view> names;
  for (const Scheme& scheme : schemes()) {
    EXPECT_TRUE(names.insert(scheme.name).second) << scheme.name << " is listed twice";
    EXPECT_EQ(&find_scheme(scheme.name), &scheme);
    EXPECT_NE(scheme.make, nullptr);
  }
  EXPECT_GE(names.size(), 2u);
}

TEST(Registry, unknown_name_is_refused_with_the_known_ones) {
  try {
    find_scheme("balanced");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'balanced'"));
    for (const Scheme& scheme : schemes())
      EXPECT_THAT(error.what(), ::testing::HasSubstr(std::string(scheme.name)));
  }
}

TEST(Registry, stages_have_names) {
  EXPECT_STREQ(name_of(Stage::select), "select");
  EXPECT_STREQ(name_of(Stage::decode), "decode");
}

TEST(LayoutFingerprint, low_half_changes_with_every_field) {
  const auto low = [](auto... fields) {
    return static_cast<uint32_t>(layout_fingerprint(fields...));
  };
  const std::set<uint32_t> all = {low("allreduce", DType::f32, 1000, 4, 1, 2, 4.f),
                                  low("agsparse", DType::f32, 1000, 4, 1, 2, 4.f),
                                  low("allreduce", DType::f16, 1000, 4, 1, 2, 4.f),
                                  low("allreduce", DType::f32, 1001, 4, 1, 2, 4.f),
                                  low("allreduce", DType::f32, 1000, 5, 1, 2, 4.f),
                                  low("allreduce", DType::f32, 1000, 4, 2, 2, 4.f),
                                  low("allreduce", DType::f32, 1000, 4, 1, 3, 4.f),
                                  low("allreduce", DType::f32, 1000, 4, 1, 2, 1.f)};
  EXPECT_EQ(all.size(), 8u);
  EXPECT_EQ(low("allreduce", DType::f32, 1000, 4, 1, 2, 4.f),
            low("allreduce", DType::f32, 1000, 4, 1, 2, 4.f));
}

// Ranks of different builds must agree, so the function never changes.
TEST(LayoutFingerprint, has_a_golden_value) {
  EXPECT_EQ(layout_fingerprint("balanced_parallelism", DType::bf16, 1 << 20, 8, 42, 4, 8.f),
            16596064742664409186u);
}

}  // namespace
}  // namespace zen
