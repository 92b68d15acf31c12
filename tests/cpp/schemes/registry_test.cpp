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

std::string refusal(const Scheme& scheme, bool pack_values, std::optional<DType> wire_dtype) {
  try {
    check_options(scheme, pack_values, wire_dtype);
    return {};
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

TEST(Registry, an_option_without_effect_is_refused_with_the_schemes_that_have_it) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  for (const Scheme& scheme : schemes()) {
    const std::string name(scheme.name);
    EXPECT_EQ(refusal(scheme, false, {}), "");
    EXPECT_EQ(refusal(scheme, true, {}) == "", scheme.packs_values) << name;
    EXPECT_EQ(refusal(scheme, false, DType::bf16) == "", scheme.narrows_values) << name;
    EXPECT_THAT(refusal(scheme, false, DType::f16), HasSubstr("wire_dtype is float16"));
  }
  EXPECT_THAT(refusal(find_scheme("agsparse"), true, {}),
              AllOf(HasSubstr("pack_values has no effect on scheme 'agsparse'"),
                    HasSubstr("balanced_parallelism, hierarchical")));
  EXPECT_THAT(refusal(find_scheme("hierarchical"), true, DType::bf16),
              AllOf(HasSubstr("wire_dtype has no effect on scheme 'hierarchical'"),
                    HasSubstr("omnireduce, sparse_ps"), HasSubstr("balanced_parallelism")));
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
                                  low("allreduce", DType::f32, 1000, 4, 1, 2, 1.f),
                                  low("allreduce", DType::f32, 1000, 4, 1, 2, 4.f, DType::bf16)};
  EXPECT_EQ(all.size(), 9u);
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
