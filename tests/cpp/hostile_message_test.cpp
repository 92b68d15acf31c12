// Messages that nobody would send: open() must refuse them or return a sound normal form, and read
// nothing outside the bytes it is given (run under AddressSanitizer to see that).
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "core/codec.h"
#include "core/error.h"
#include "selections.h"

namespace zen {
namespace {

using test::heap_buffer;
using test::select_if;

constexpr Identity kIdentity{0x01020304, 77, 1, 2, 5};

// One message and what is expected of it.
struct Sample {
  std::string name;
  std::shared_ptr<const Placement> placement;
  Shard shard;
  DType dtype;
  Buffer message;

  OpenMessage open_bytes(const Buffer& bytes) const {
    return open(bytes, shard, dtype, kIdentity, heap_buffer);
  }
  uint8_t* field(size_t offset) const { return reinterpret_cast<uint8_t*>(message.data) + offset; }
  template <class T>
  void put(size_t offset, T value) const {
    std::memcpy(field(offset), &value, sizeof value);
  }
  size_t index() const { return read_header(message.span()).index_offset(); }
};

Sample sample(std::string name, Choice choice, uint64_t numel, DType dtype,
              const test::Listed& listed) {
  const auto placement = Placement::make(PlacementKind::whole, numel, 1, 0);
  const Shard shard = placement->shard(0, placement->all());
  // Exactly as long as the message, so that a sanitizer sees every byte read too far.
  const Buffer made = encode(select_if(shard, dtype, listed), choice, kIdentity, heap_buffer);
  const Buffer message = heap_buffer(made.bytes);
  std::memcpy(message.data, made.data, made.bytes);
  return {std::move(name), placement, shard, dtype, message};
}

Buffer prefix(const Buffer& message, size_t bytes) {
  const Buffer copy = heap_buffer(bytes);
  std::memcpy(copy.data, message.data, bytes);
  return copy;
}

std::vector<Sample> samples() {
  const auto scattered = test::uniform(0.02, 1), many = test::uniform(0.4, 2);
  const auto first_words = [](uint64_t elem) { return elem < 64 * 9 || elem == 64 * 9 + 3; };
  const auto with_last = [=](uint64_t elem) { return scattered(elem) || elem == 776; };
  const auto few_words = [](uint64_t elem) { return elem % 1280 < 3; };
  return {sample("dense", Choice::dense, 139, DType::bf16, many),
          sample("words, bitmap, no flags", Choice::words, 1001, DType::f32, scattered),
          sample("words, Elias-Fano", Choice::words, 64 * 300, DType::bf16, few_words),
          sample("words, flags", Choice::words, 64 * 11 + 5, DType::bf16, first_words),
          sample("words, all", Choice::words, 130, DType::f32, [](uint64_t) { return true; }),
          sample("words, nothing", Choice::words, 130, DType::f32, [](uint64_t) { return false; }),
          sample("positions", Choice::positions, 1500, DType::bf16, scattered),
          sample("positions, many", Choice::positions, 301, DType::f16, many),
          sample("bitmap", Choice::bitmap, 777, DType::bf16, with_last),
          sample("coo, odd", Choice::coo, 500, DType::bf16, [](uint64_t e) { return e % 71 == 9; }),
          sample("coo", Choice::coo, 500, DType::f32, scattered),
          sample("blocks", Choice::blocks, 256 * 5 + 70, DType::bf16, scattered)};
}

// The invariants of an OpenMessage, by the plainest code.
void expect_sound(const Sample& sample, const OpenMessage& opened) {
  const Shard& shard = sample.shard;
  ASSERT_EQ(opened.presence.bytes, shard.presence_words() * 8);
  ASSERT_EQ(opened.masks.bytes, size_t{opened.header.present_words} * 8);
  uint64_t count = 0, present = 0;
  for (uint64_t slot = 0; slot < shard.presence_words() * 64; ++slot) {
    if (!bit_at(opened.presence_bits(), slot)) continue;
    ASSERT_LT(slot, shard.slots);
    ASSERT_LT(present, opened.header.present_words);
    const uint64_t mask = opened.mask_list()[present++];
    ASSERT_NE(mask, 0u);
    const uint64_t elements = shard.placement->elements(shard.word(slot));
    ASSERT_EQ(mask & ~low_bits(elements), 0u);
    count += static_cast<uint64_t>(std::popcount(mask));
  }
  ASSERT_EQ(present, opened.header.present_words);
  ASSERT_EQ(count, opened.header.count);
  ASSERT_EQ(opened.header.value_bytes, count * size_of(sample.dtype));
  ASSERT_GE(opened.values, opened.message.data + kHeaderBytes);
  ASSERT_LE(opened.values + opened.header.value_bytes, opened.message.data + opened.message.bytes);
}

// Whether it opened; if so, it must be sound.
bool opens_soundly(const Sample& sample, const Buffer& bytes) {
  try {
    expect_sound(sample, sample.open_bytes(bytes));
    return true;
  } catch (const MalformedMessage&) {
    return false;
  }
}

TEST(HostileMessage, samples_open) {
  for (const Sample& sample : samples()) {
    SCOPED_TRACE(sample.name);
    EXPECT_TRUE(opens_soundly(sample, sample.message));
  }
}

TEST(HostileMessage, every_truncation_is_rejected) {
  for (const Sample& sample : samples())
    for (size_t bytes = 0; bytes < sample.message.bytes; ++bytes)
      EXPECT_THROW(sample.open_bytes(prefix(sample.message, bytes)), MalformedMessage)
          << sample.name << " cut to " << bytes << " of " << sample.message.bytes;
}

TEST(HostileMessage, every_flipped_bit_is_rejected_or_harmless) {
  for (const Sample& sample : samples())
    for (size_t bit = 0; bit < sample.message.bytes * 8; ++bit) {
      SCOPED_TRACE(testing::Message() << sample.name << ", bit " << bit);
      *sample.field(bit / 8) ^= static_cast<uint8_t>(1 << bit % 8);
      const bool opened = opens_soundly(sample, sample.message);
      *sample.field(bit / 8) ^= static_cast<uint8_t>(1 << bit % 8);
      const size_t values = kHeaderBytes * 8,
                   values_end = values + read_header(sample.message.span()).value_bytes * 8;
      // With no present word at all, none and all of them are full.
      if (bit < values && sample.name != "words, nothing") {
        EXPECT_FALSE(opened);
      } else if (bit >= values && bit < values_end) {
        EXPECT_TRUE(opened);
      }
    }
}

// Elias-Fano, bitmap and mask decoding with any index bytes behind a correct header.
TEST(HostileMessage, random_index_bytes_are_rejected_or_harmless) {
  std::mt19937_64 random(1);
  for (const Sample& sample : samples()) {
    SCOPED_TRACE(sample.name);
    for (int trial = 0; trial < 2000; ++trial) {
      const Buffer bytes = prefix(sample.message, sample.message.bytes);
      for (size_t at = sample.index(); at < bytes.bytes; ++at)
        if (random() % 4 == 0) bytes.data[at] = static_cast<std::byte>(random());
      opens_soundly(sample, bytes);
    }
  }
}

TEST(HostileMessage, random_header_fields_are_rejected_or_harmless) {
  std::mt19937_64 random(2);
  const uint64_t limits[] = {
      0, 1, 7, 8, 63, 64, 65, 1u << 31, ~uint64_t{0}, ~uint64_t{0} - 7, uint64_t{1} << 63};
  for (const Sample& sample : samples()) {
    SCOPED_TRACE(sample.name);
    for (int trial = 0; trial < 2000; ++trial) {
      const Sample copy{sample.name, sample.placement, sample.shard, sample.dtype,
                        prefix(sample.message, sample.message.bytes)};
      if (random() % 2 == 0) copy.put<uint8_t>(3, random() % kEncodings);
      if (random() % 2 == 0) copy.put<uint8_t>(5, random() % 16);
      for (const size_t offset : {24, 32, 40})
        if (random() % 4 == 0) copy.put<uint64_t>(offset, limits[random() % std::size(limits)]);
      if (random() % 4 == 0) copy.put<uint32_t>(20, static_cast<uint32_t>(random() % 70));
      opens_soundly(copy, copy.message);
    }
  }
}

// Each case breaks one thing; the error must name it.
struct Breakage {
  const char* sample;
  const char* named;  // part of the error message
  std::function<void(const Sample&)> damage;
};

const Breakage kBreakages[] = {
    {"dense", "magic", [](const Sample& s) { s.put<uint8_t>(0, 'X'); }},
    {"dense", "version is 2, expected 1", [](const Sample& s) { s.put<uint8_t>(2, 2); }},
    {"dense", "encoding is 9", [](const Sample& s) { s.put<uint8_t>(3, 9); }},
    {"dense", "dtype is 3", [](const Sample& s) { s.put<uint8_t>(4, 3); }},
    {"dense", "dtype is 1, expected 2", [](const Sample& s) { s.put<uint8_t>(4, 1); }},
    {"dense", "flags is 1, expected 0", [](const Sample& s) { s.put<uint8_t>(5, 1); }},
    {"dense", "phase is 9, expected 1", [](const Sample& s) { s.put<uint8_t>(6, 9); }},
    {"dense", "chunk is 9, expected 2", [](const Sample& s) { s.put<uint8_t>(7, 9); }},
    {"dense", "sequence is 9, expected 77", [](const Sample& s) { s.put<uint32_t>(8, 9); }},
    {"dense", "layout is 9, expected 16909060", [](const Sample& s) { s.put<uint32_t>(12, 9); }},
    {"dense", "owner is 9, expected 0", [](const Sample& s) { s.put<uint16_t>(16, 9); }},
    {"dense", "source is 9, expected 5", [](const Sample& s) { s.put<uint16_t>(18, 9); }},
    {"dense", "present_words is 2, expected 3", [](const Sample& s) { s.put<uint32_t>(20, 2); }},
    {"dense", "present_words is 4, expected at most 3",
     [](const Sample& s) { s.put<uint32_t>(20, 4); }},
    {"dense", "count is 140, expected at most 139",
     [](const Sample& s) { s.put<uint64_t>(24, 140); }},
    {"dense", "value_bytes is 276, expected 278",
     [](const Sample& s) { s.put<uint64_t>(32, 276); }},
    {"dense", "value_bytes is 18446744073709551615",
     [](const Sample& s) { s.put<uint64_t>(32, ~uint64_t{0}); }},
    {"positions", "index_bytes is 18446744073709551608",
     [](const Sample& s) { s.put<uint64_t>(40, ~uint64_t{7}); }},
    {"coo, odd", "padding behind the values", [](const Sample& s) { *s.field(s.index() - 1) = 1; }},
    {"coo, odd", "padding of the index",
     [](const Sample& s) { *s.field(s.message.bytes - 1) = 1; }},
    {"coo, odd", "position 500, expected at least",
     [](const Sample& s) { s.put<uint32_t>(s.message.bytes - 8, 500); }},
    {"coo, odd", "position 80, expected at least 81",
     [](const Sample& s) { s.put<uint32_t>(s.index() + 8, 80); }},
    {"words, all", "flags", [](const Sample& s) { s.put<uint8_t>(5, 3); }},
    {"words, all", "flags", [](const Sample& s) { s.put<uint8_t>(5, 12); }},
    {"words, bitmap, no flags", "presence bits past the last slot",
     [](const Sample& s) { *s.field(s.index() + 7) = 1; }},
    {"words, bitmap, no flags", "mask of a present word is zero",
     [](const Sample& s) { s.put<uint64_t>(s.index() + 8, 0); }},
    {"words, bitmap, no flags", "number of mask bits",
     [](const Sample& s) { s.put<uint64_t>(s.index() + 8, ~uint64_t{0}); }},
    {"words, flags", "padding of the full flags",
     [](const Sample& s) { *s.field(s.index() + 15) = 1; }},
    {"words, flags", "number of masks", [](const Sample& s) { *s.field(s.index() + 8) ^= 1; }},
    {"words, flags", "full flag of a full word is 0, expected 1",
     [](const Sample& s) { s.put<uint64_t>(s.index() + 16, ~uint64_t{0}); }},
    {"words, Elias-Fano", "Elias-Fano padding",
     [](const Sample& s) { *s.field(s.index() + 7) = 0x80; }},
    {"words, Elias-Fano", "Elias-Fano list of",
     [](const Sample& s) { *s.field(s.index() + 8) = 0xff; }},
    {"positions", "index_bytes", [](const Sample& s) { s.put<uint8_t>(3, 4); }},
    {"bitmap", "number of present words",
     [](const Sample& s) { s.put<uint32_t>(20, *reinterpret_cast<uint32_t*>(s.field(20)) - 1); }},
    {"bitmap", "past the end of the gradient",
     [](const Sample& s) {  // moves the last word's lowest bit past the end
       auto* mask = reinterpret_cast<uint64_t*>(s.field(s.message.bytes - 8));
       *mask = (*mask & (*mask - 1)) | uint64_t{1} << 63;
     }},
    {"blocks", "padding of the block bits", [](const Sample& s) { *s.field(s.index() + 7) = 1; }},
    {"blocks", "number of presence bits", [](const Sample& s) { *s.field(s.index()) ^= 1; }},
};

TEST(HostileMessage, the_error_names_the_field_and_both_values) {
  for (const Breakage& breakage : kBreakages) {
    SCOPED_TRACE(testing::Message() << breakage.sample << ": " << breakage.named);
    for (const Sample& sample : samples()) {
      if (sample.name != breakage.sample) continue;
      breakage.damage(sample);
      try {
        sample.open_bytes(sample.message);
        ADD_FAILURE() << "opened";
      } catch (const MalformedMessage& error) {
        EXPECT_NE(std::string(error.what()).find(breakage.named), std::string::npos)
            << error.what();
      }
    }
  }
}

TEST(HostileMessage, an_empty_buffer_is_rejected) {
  const Sample dense = samples().front();
  EXPECT_THROW(dense.open_bytes(Buffer{}), MalformedMessage);
}

}  // namespace
}  // namespace zen
