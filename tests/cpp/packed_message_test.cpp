// Messages with packed values: the same content in fewer bytes, or not packed at all; and damaged
// ones do no harm.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/codec.h"
#include "core/error.h"
#include "selections.h"

namespace zen {
namespace {

using test::heap_buffer;

constexpr Identity kIdentity{0x01020304, 77, 1, 2, 5};
const Choice kChoices[] = {Choice::dense, Choice::words,  Choice::positions, Choice::bitmap,
                           Choice::coo,   Choice::blocks, Choice::cheapest};

// Exponents spread as those of gradients, by a hash of the element.
float gradient_value(uint64_t elem) {
  const uint32_t hash = test::value_bits(elem);
  const auto size = std::ldexp(1.0f + float(hash >> 8 & 0xff) / 256, -std::countl_zero(hash | 1));
  return hash & 2 ? size : -size;
}

ShardSelection gradient_selection(const Shard& shard, DType dtype, const test::Listed& listed) {
  ShardSelection selection = test::select_if(shard, dtype, listed);
  std::byte* value = selection.message.data + kHeaderBytes;
  for (uint64_t slot = 0; slot < shard.slots; ++slot)
    for (uint64_t e = 0; e < shard.placement->elements(shard.word(slot)); ++e) {
      const uint64_t elem = shard.word(slot) * kWordElems + e;
      if (!listed(elem)) continue;
      with_type(dtype, [&]<class T>(T) {
        const T typed = from_float<T>(gradient_value(elem));
        std::memcpy(value, &typed, sizeof typed);
      });
      value += size_of(dtype);
    }
  return selection;
}

struct Case {
  std::shared_ptr<const Placement> placement;
  Shard shard;
  DType dtype;
  test::Listed listed;
  Choice choice;

  ShardSelection selection() const { return gradient_selection(shard, dtype, listed); }
  // Exactly as long as the message, so that a sanitizer sees every byte read too far.
  Buffer encoded(bool pack) const {
    const Buffer made = encode(selection(), {choice, pack}, kIdentity, heap_buffer);
    const Buffer message = heap_buffer(made.bytes);
    std::memcpy(message.data, made.data, made.bytes);
    return message;
  }
  OpenMessage opened(const Buffer& message) const {
    return open(message, shard, dtype, kIdentity, heap_buffer);
  }
};

template <class F>
void for_all_cases(std::initializer_list<uint64_t> sizes, F&& f) {
  for (const uint64_t numel : sizes) {
    const auto placement = Placement::make(PlacementKind::hashed, numel, 2, 9);
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
      for (const double density : {0.0, 0.03, 0.5, 1.0})
        for (const Choice choice : kChoices) {
          SCOPED_TRACE(testing::Message()
                       << "numel " << numel << ", " << name_of(dtype) << ", density " << density
                       << ", choice " << static_cast<int>(choice));
          f(Case{placement, placement->shard(1, placement->all()), dtype, test::uniform(density, 1),
                 choice});
        }
  }
}

void expect_same_bytes(const Buffer& a, const Buffer& b) {
  ASSERT_EQ(a.bytes, b.bytes);
  if (a.bytes != 0) {
    EXPECT_EQ(std::memcmp(a.data, b.data, a.bytes), 0);
  }
}

TEST(PackedMessage, has_the_content_of_the_plain_one) {
  for_all_cases({1, 64, 130, 4097, 30011}, [](const Case& test) {
    const OpenMessage plain = test.opened(test.encoded(false));
    const OpenMessage packed = test.opened(test.encoded(true));
    EXPECT_FALSE(plain.header.packed);
    EXPECT_EQ(packed.header.count, plain.header.count);
    expect_same_bytes(packed.presence, plain.presence);
    expect_same_bytes(packed.masks, plain.masks);
    const size_t bytes = plain.header.count * size_of(test.dtype);
    ASSERT_GE(packed.readable_end(), packed.values + bytes);
    EXPECT_EQ(std::memcmp(packed.values, plain.values, bytes), 0);
  });
}

TEST(PackedMessage, is_never_longer_and_mostly_shorter) {
  for_all_cases({1, 130, 30011}, [](const Case& test) {
    const Buffer plain = test.encoded(false), packed = test.encoded(true);
    EXPECT_LE(packed.bytes, plain.bytes);
    EXPECT_LE(packed.bytes, max_message_bytes(test.shard, test.dtype, test.choice));
    EXPECT_EQ(message_bytes(packed.span()), packed.bytes);
    const Header header = read_header(packed.span());
    EXPECT_EQ(header.packed, header.value_bytes != header.count * size_of(test.dtype));
    if (test.choice != Choice::dense && test.choice != Choice::blocks && header.count > 300) {
      EXPECT_TRUE(header.packed);
    }
  });
}

// Also where packing turns the choice around: dense values with a few zeros pack differently.
TEST(PackedMessage, cheapest_is_the_smallest_of_all_packed_ones) {
  const auto placement = Placement::make(PlacementKind::hashed, 60'000, 2, 9);
  const Shard shard = placement->shard(1, placement->all());
  std::vector<Encoding> taken, taken_unpacked;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const double density : {0.0, 0.03, 0.5, 0.8, 0.9, 0.93, 0.95, 0.97, 0.99, 0.999, 1.0}) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << ", density " << density);
      const test::Listed listed = test::uniform(density, 1);
      size_t smallest = ~size_t{0};
      for (const Choice choice : {Choice::dense, Choice::words, Choice::positions, Choice::bitmap})
        smallest =
            std::min(smallest, Case{placement, shard, dtype, listed, choice}.encoded(true).bytes);
      const Case cheapest{placement, shard, dtype, listed, Choice::cheapest};
      const Buffer message = cheapest.encoded(true);
      EXPECT_EQ(message.bytes, smallest);
      cheapest.opened(message);
      taken.push_back(read_header(message.span()).encoding);
      taken_unpacked.push_back(read_header(cheapest.encoded(false).span()).encoding);
    }
  EXPECT_NE(taken, taken_unpacked);
  EXPECT_NE(std::count(taken.begin(), taken.end(), Encoding::dense), 0);
}

TEST(PackedMessage, keeps_values_that_do_not_pack_as_they_are) {
  const auto placement = Placement::make(PlacementKind::whole, 9000, 1, 0);
  const Shard shard = placement->shard(0, placement->all());
  const auto selection = [&] {
    ShardSelection all = test::select_if(shard, DType::bf16, [](uint64_t) { return true; });
    return all;
  };
  const Buffer plain = encode(selection(), Choice::dense, kIdentity, heap_buffer);
  const Buffer packed = encode(selection(), {Choice::dense, true}, kIdentity, heap_buffer);
  expect_same_bytes(packed, plain);
}

TEST(PackedMessage, every_truncation_is_rejected) {
  for_all_cases({500}, [](const Case& test) {
    const Buffer message = test.encoded(true);
    for (size_t bytes = 0; bytes < message.bytes; ++bytes) {
      const Buffer cut = heap_buffer(bytes);
      std::memcpy(cut.data, message.data, bytes);
      EXPECT_THROW(test.opened(cut), MalformedMessage) << bytes << " of " << message.bytes;
    }
  });
}

TEST(PackedMessage, every_flipped_bit_is_rejected_or_harmless) {
  for_all_cases({500}, [](const Case& test) {
    const Buffer message = test.encoded(true);
    for (size_t bit = 0; bit < message.bytes * 8; ++bit) {
      message.data[bit / 8] ^= std::byte(1 << bit % 8);
      try {
        const OpenMessage opened = test.opened(message);
        const size_t bytes = opened.header.count * size_of(test.dtype);
        EXPECT_GE(opened.readable_end(), opened.values + bytes);
      } catch (const MalformedMessage&) {
      }
      message.data[bit / 8] ^= std::byte(1 << bit % 8);
    }
  });
}

TEST(PackedMessage, must_be_shorter_than_its_values) {
  const auto placement = Placement::make(PlacementKind::whole, 640, 1, 0);
  const Case test{placement, placement->shard(0, placement->all()), DType::bf16,
                  [](uint64_t) { return true; }, Choice::dense};
  const Buffer message = test.encoded(false);
  message.data[5] |= std::byte{0x80};
  try {
    test.opened(message);
    FAIL() << "accepted";
  } catch (const MalformedMessage& error) {
    EXPECT_STREQ(error.what(),
                 "malformed message: packed values take 1280 bytes, but 1280 as they are");
  }
}

}  // namespace
}  // namespace zen
