#include "schemes/planner.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "schemes/thread_transport.h"

namespace zen {
namespace {

Planner planner(int chunks, const Traits& traits = kGlooTraits) {
  return Planner(chunks, 17, 3, traits);
}

const Scheme& scheme(const char* name = "balanced_parallelism") {
  return find_scheme(name);
}

TEST(Planner, cuts_large_gradients_into_as_many_chunks_as_the_transport_can_use) {
  EXPECT_EQ(planner(0).plan(scheme(), DType::f32, 1 << 20, 3).chunks, 1);
  EXPECT_EQ(planner(0).plan(scheme(), DType::f32, 2 << 20, 3).chunks, 4);
  EXPECT_EQ(planner(0).plan(scheme(), DType::bf16, 2 << 20, 3).chunks, 1)
      << "bytes count, not elements";
  EXPECT_EQ(planner(0, kNcclTraits).plan(scheme(), DType::f32, 2 << 20, 3).chunks, 1);
  EXPECT_EQ(planner(7, kNcclTraits).plan(scheme(), DType::f32, 10, 3).chunks, 7)
      << "the caller's choice";
}

TEST(Planner, refuses_impossible_options) {
  EXPECT_THROW(planner(-1), InvalidArgument);
  EXPECT_THROW(planner(kMaxChunks + 1), InvalidArgument);
}

TEST(Planner, fingerprint_tells_every_difference) {
  const uint64_t base = planner(2).plan(scheme(), DType::f32, 1000, 3).fingerprint;
  EXPECT_EQ(planner(2).plan(scheme(), DType::f32, 1000, 3).fingerprint, base);
  EXPECT_NE(planner(2).plan(scheme(), DType::f16, 1000, 3).fingerprint, base);
  EXPECT_NE(planner(2).plan(scheme(), DType::f32, 1001, 3).fingerprint, base);
  EXPECT_NE(planner(2).plan(scheme(), DType::f32, 1000, 1).fingerprint, base);
  EXPECT_NE(planner(3).plan(scheme(), DType::f32, 1000, 3).fingerprint, base);
}

TEST(Planner, wire_dtype_is_for_float32_and_part_of_the_fingerprint) {
  Planner narrow(2, 17, 3, kGlooTraits, DType::bf16);
  EXPECT_EQ(narrow.plan(scheme(), DType::f32, 1000, 3).wire_dtype, DType::bf16);
  EXPECT_NE(narrow.plan(scheme(), DType::f32, 1000, 3).fingerprint,
            planner(2).plan(scheme(), DType::f32, 1000, 3).fingerprint);
  EXPECT_EQ(narrow.plan(scheme(), DType::f16, 1000, 3).wire_dtype, std::nullopt);
  EXPECT_EQ(narrow.plan(scheme(), DType::f16, 1000, 3).fingerprint,
            planner(2).plan(scheme(), DType::f16, 1000, 3).fingerprint);
  EXPECT_EQ(narrow.plan(scheme("hierarchical"), DType::f32, 1000, 3).wire_dtype, std::nullopt);
}

TEST(Planner, schemes_without_placement_get_none) {
  EXPECT_EQ(planner(0).plan(scheme("allreduce"), DType::f32, 1000, 3).placement, nullptr);
  const auto placement = planner(0).plan(scheme(), DType::f32, 1000, 3).placement;
  ASSERT_NE(placement, nullptr);
  EXPECT_EQ(placement->owners(), 3);
  EXPECT_EQ(placement->numel(), 1000u);
}

// Hashing every element takes longer than synchronising some of them.
TEST(Planner, keeps_the_lists_of_hashed_elements) {
  Planner paper(0, 17, 3, kGlooTraits);
  const auto placement = paper.plan(scheme("zen_paper"), DType::f32, 1000, 3).placement;
  EXPECT_EQ(paper.plan(scheme("zen_paper"), DType::f16, 1000, 1).placement, placement);
  EXPECT_NE(paper.plan(scheme("zen_paper"), DType::f32, 1001, 3).placement, placement);
}

TEST(Planner, forgets_the_lists_when_there_are_ever_new_sizes) {
  Planner paper(0, 17, 3, kGlooTraits);
  const std::weak_ptr<const Placement> first =
      paper.plan(scheme("zen_paper"), DType::f32, 1000, 3).placement;
  for (uint64_t numel = 1001; numel < 1064; ++numel)
    paper.plan(scheme("zen_paper"), DType::f32, numel, 3);
  EXPECT_FALSE(first.expired());
  paper.plan(scheme("zen_paper"), DType::f32, 1064, 3);
  EXPECT_TRUE(first.expired());
}

}  // namespace
}  // namespace zen
