#include "core/cpu_features.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.h"

namespace zen {
namespace {

TEST(CpuFeatures, scalar_is_always_supported) {
  EXPECT_TRUE(supported(Isa::scalar));
}

// preferred_isa() reads the environment once, so each value needs a process of its own.
class IsaChoice : public testing::Test {
 protected:
  static void choose_and_exit(const char* wish) {
    setenv("ZENSYNC_ISA", wish, 1);
    try {
      std::exit(static_cast<int>(preferred_isa()));
    } catch (const InvalidArgument&) {
      std::exit(99);
    }
  }
};

TEST_F(IsaChoice, follows_the_environment) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(choose_and_exit("scalar"), testing::ExitedWithCode(static_cast<int>(Isa::scalar)),
              "");
  const Isa fastest = supported(Isa::avx2) ? Isa::avx2 : Isa::scalar;
  EXPECT_EXIT(choose_and_exit(""), testing::ExitedWithCode(static_cast<int>(fastest)), "");
}

TEST_F(IsaChoice, refuses_unknown_names) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(choose_and_exit("avx9000"), testing::ExitedWithCode(99), "");
}

void choose_pext_and_exit(const char* wish) {
  setenv("ZENSYNC_PEXT", wish, 1);
  try {
    std::exit(quick_pext());
  } catch (const InvalidArgument&) {
    std::exit(99);
  }
}

TEST(PextChoice, follows_the_environment) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(choose_pext_and_exit("0"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(choose_pext_and_exit("1"), testing::ExitedWithCode(supported(Isa::avx2)), "");
  EXPECT_EXIT(choose_pext_and_exit("2"), testing::ExitedWithCode(99), "");
}

}  // namespace
}  // namespace zen
