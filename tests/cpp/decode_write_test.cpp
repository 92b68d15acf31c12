#include "core/decode_write.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "oracle.h"

namespace zen::test {
namespace {

// Fills a gradient with something that a write must not disturb.
TestGradient noise(DType dtype, uint64_t numel) {
  TestGradient gradient(dtype, numel);
  std::mt19937_64 random(numel);
  for (uint64_t elem = 0; elem < numel; ++elem)
    gradient.set_bits(elem, static_cast<uint32_t>(random()));
  return gradient;
}

void expect_writes_like_oracle(const Lists& lists, const Shard& shard, DType dtype) {
  const OpenMessage message = open_message(lists, shard, dtype);
  TestGradient expected = noise(dtype, shard.placement->numel());
  oracle_decode_write(lists, expected);
  for (Isa isa : supported_isas()) {
    SCOPED_TRACE(zen::name_of(isa));
    TestGradient actual = noise(dtype, shard.placement->numel());
    decode_write({&message, 1}, {&shard, 1}, actual.view(), isa);
    expect_same(actual, expected);
  }
}

class DecodeWriteTest : public testing::TestWithParam<std::tuple<DType, Pattern>> {};

TEST_P(DecodeWriteTest, writes_exactly_the_listed_elements) {
  const auto [dtype, pattern] = GetParam();
  for (uint64_t numel : {0u, 1u, 63u, 64u, 65u, 127u, 1000u, 4097u, 20011u})
    for (double density : {0.0, 0.001, 0.05, 0.5, 0.97, 1.0})
      for (int owners : {1, 3}) {
        SCOPED_TRACE(std::to_string(numel) + " elements, density " + std::to_string(density));
        const auto placement = Placement::make(PlacementKind::hashed, numel, owners, 1);
        TestGradient source = make_gradient(dtype, numel, pattern, density, numel);
        const auto lists = oracle_select(source, *placement, placement->all());
        for (int owner = 0; owner < owners; ++owner)
          expect_writes_like_oracle(lists[static_cast<size_t>(owner)],
                                    placement->shard(owner, placement->all()), dtype);
        if (HasFatalFailure()) return;
      }
}

INSTANTIATE_TEST_SUITE_P(Everything, DecodeWriteTest,
                         testing::Combine(testing::ValuesIn(kDTypes), testing::ValuesIn(kPatterns)),
                         [](const auto& info) {
                           return std::string(zen::name_of(std::get<0>(info.param))) + "_" +
                                  name_of(std::get<1>(info.param));
                         });

TEST(DecodeWriteChunks, write_their_own_words) {
  for (PlacementKind kind :
       {PlacementKind::ranges, PlacementKind::hashed, PlacementKind::hashed_elements}) {
    const auto placement = Placement::make(kind, 20011, 3, 4);
    TestGradient source = make_gradient(DType::f32, 20011, Pattern::uniform, 0.5, 2);
    for (WordRange range : placement->split(3)) {
      const auto lists = oracle_select(source, *placement, range);
      for (int owner = 0; owner < 3; ++owner)
        expect_writes_like_oracle(lists[static_cast<size_t>(owner)], placement->shard(owner, range),
                                  DType::f32);
    }
  }
}

// Owners of unequal density, several chunks, a short last word: every reader ends elsewhere.
TEST(DecodeWriteTogether, writes_what_the_messages_write_one_by_one) {
  for (PlacementKind kind :
       {PlacementKind::ranges, PlacementKind::hashed, PlacementKind::hashed_elements})
    for (int owners : {1, 2, 5, 16, 300}) {
      const auto placement = Placement::make(kind, 70001, owners, 4);
      TestGradient source = make_gradient(DType::f32, 70001, Pattern::one_range, 0.3, 2);
      const auto lists = oracle_select(source, *placement, placement->all());
      TestGradient expected = noise(DType::f32, 70001);
      std::vector<OpenMessage> messages;
      std::vector<Shard> shards;
      for (int owner = 0; owner < owners; ++owner) {
        shards.push_back(placement->shard(owner, placement->all()));
        messages.push_back(
            open_message(lists[static_cast<size_t>(owner)], shards.back(), DType::f32));
        oracle_decode_write(lists[static_cast<size_t>(owner)], expected);
      }
      for (Isa isa : supported_isas()) {
        TestGradient actual = noise(DType::f32, 70001);
        decode_write(messages, shards, actual.view(), isa);
        expect_same(actual, expected);
      }
    }
}

TEST(DecodeWriteArguments, dtype_and_size_must_match) {
  const auto placement = Placement::make(PlacementKind::whole, 100, 1, 0);
  const Shard shard = placement->shard(0, placement->all());
  const OpenMessage message = open_message({{3, 1}}, shard, DType::bf16);
  TestGradient other_dtype(DType::f16, 100), other_size(DType::bf16, 99);
  EXPECT_THROW(decode_write({&message, 1}, {&shard, 1}, other_dtype.view()), InvalidArgument);
  EXPECT_THROW(decode_write({&message, 1}, {&shard, 1}, other_size.view()), InvalidArgument);
}

}  // namespace
}  // namespace zen::test
