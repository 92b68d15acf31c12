#include "core/select.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/hierarchical_hash.h"
#include "oracle.h"

namespace zen::test {
namespace {

constexpr uint64_t kSizes[] = {0, 1, 63, 64, 65, 127, 1000, 4096, 4097, 20011};
constexpr double kDensities[] = {0, 0.001, 0.05, 0.5, 0.97, 1};

void expect_selects_like_oracle(const TestGradient& input, const Placement& placement,
                                WordRange range, Isa isa) {
  TestGradient expected = input, actual = input;
  const std::vector<Lists> lists = oracle_select(expected, placement, range);
  const Selection selection = select(actual.view(), placement, range, heap_buffer, isa);
  ASSERT_EQ(selection.size(), lists.size());
  for (size_t owner = 0; owner < lists.size(); ++owner) {
    SCOPED_TRACE("owner " + std::to_string(owner));
    ASSERT_EQ(selection[owner].shard.owner, static_cast<int>(owner));
    expect_same(lists_of(selection[owner]), lists[owner], input.dtype());
  }
  expect_same(actual, expected);
}

class SelectTest : public testing::TestWithParam<std::tuple<DType, Pattern>> {};

TEST_P(SelectTest, finds_what_the_oracle_finds) {
  const auto [dtype, pattern] = GetParam();
  for (uint64_t numel : kSizes)
    for (double density : kDensities) {
      const TestGradient input = make_gradient(dtype, numel, pattern, density, numel + 1);
      const auto placement = Placement::make(PlacementKind::hashed, numel, 5, 7);
      for (Isa isa : supported_isas()) {
        SCOPED_TRACE(std::to_string(numel) + " elements, density " + std::to_string(density) +
                     ", " + zen::name_of(isa));
        expect_selects_like_oracle(input, *placement, placement->all(), isa);
        if (HasFatalFailure()) return;
      }
      const auto elements = Placement::make(PlacementKind::hashed_elements, numel, 5, 7);
      expect_selects_like_oracle(input, *elements, elements->all(), preferred_isa());
      if (HasFatalFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Everything, SelectTest,
                         testing::Combine(testing::ValuesIn(kDTypes), testing::ValuesIn(kPatterns)),
                         [](const auto& info) {
                           return std::string(zen::name_of(std::get<0>(info.param))) + "_" +
                                  name_of(std::get<1>(info.param));
                         });

TEST(SelectPlacement, serves_any_number_of_owners) {
  const TestGradient input = make_gradient(DType::f32, 20011, Pattern::uniform, 0.1, 3);
  for (Isa isa : supported_isas())
    for (int owners : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 100, 65535})
      for (PlacementKind kind :
           {PlacementKind::hashed, PlacementKind::ranges, PlacementKind::hashed_elements}) {
        SCOPED_TRACE(std::to_string(owners) + " owners");
        const auto placement = Placement::make(kind, input.numel(), owners, 11);
        expect_selects_like_oracle(input, *placement, placement->all(), isa);
        if (HasFatalFailure()) return;
      }
}

TEST(SelectPlacement, ranges_of_words_cover_the_gradient) {
  const TestGradient input = make_gradient(DType::bf16, 10007, Pattern::rows, 0.3, 5);
  for (Isa isa : supported_isas())
    for (PlacementKind kind : {PlacementKind::whole, PlacementKind::ranges, PlacementKind::hashed,
                               PlacementKind::hashed_elements}) {
      const auto placement =
          Placement::make(kind, input.numel(), kind == PlacementKind::whole ? 1 : 3, 0);
      for (WordRange range : placement->split(4)) {
        SCOPED_TRACE("words " + std::to_string(range.begin) + " to " + std::to_string(range.end));
        expect_selects_like_oracle(input, *placement, range, isa);
        if (HasFatalFailure()) return;
      }
      expect_selects_like_oracle(input, *placement, {5, 5}, isa);
    }
}

// All non-zeros belong to one owner, which has serial memory for a few more than its share only.
TEST(SelectElements, a_full_serial_memory_loses_nothing) {
  constexpr uint64_t kNumel = 100'000;
  const auto placement = Placement::make(PlacementKind::hashed_elements, kNumel, 16, 3);
  TestGradient gradient(DType::f32, kNumel);
  uint64_t nonzeros = 0;
  for (uint64_t elem = 0; elem < kNumel; ++elem)
    if (placement->owner_of_element(elem) == 5) gradient.set(elem, 1), ++nonzeros;
  HierarchicalHash hash = make_hierarchical_hash(PartitionHash(16, 3), 3, 3, nonzeros, 2, 1);
  std::vector<uint32_t> all = nonzero_indices<uint32_t>(gradient.view());
  ASSERT_THROW(insert_indices(std::span<const uint32_t>(all), hash), SerialMemoryFull);
  expect_selects_like_oracle(gradient, *placement, placement->all(), preferred_isa());
}

TEST(SelectArguments, refuses_a_gradient_of_another_size) {
  TestGradient gradient(DType::f32, 100);
  const auto placement = Placement::make(PlacementKind::hashed, 101, 2, 0);
  EXPECT_THROW(select(gradient.view(), *placement, placement->all(), heap_buffer), InvalidArgument);
}

TEST(SelectArguments, refuses_a_gradient_shorter_than_it_claims) {
  TestGradient gradient(DType::bf16, 100);
  Gradient view = gradient.view();
  view.dtype = DType::f32;
  const auto placement = Placement::make(PlacementKind::hashed, 100, 2, 0);
  EXPECT_THROW(select(view, *placement, placement->all(), heap_buffer), InvalidArgument);
}

TEST(SelectArguments, refuses_words_behind_the_end) {
  TestGradient gradient(DType::f32, 100);
  const auto placement = Placement::make(PlacementKind::hashed, 100, 2, 0);
  EXPECT_THROW(select(gradient.view(), *placement, {0, 3}, heap_buffer), InvalidArgument);
}

}  // namespace
}  // namespace zen::test
