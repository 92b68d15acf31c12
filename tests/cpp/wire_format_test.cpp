// docs/wire-format.md is the specification and holds the golden bytes: each worked example there
// must be exactly what encode() makes, and must decode to what the page says.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "core/codec.h"
#include "selections.h"

namespace zen {
namespace {

using test::heap_buffer;

using Bytes = std::vector<uint8_t>;

// What the page says above its examples.
constexpr Identity kIdentity{0x11223344, 7, 1, 0, 2};

struct Example {
  const char* name;
  Choice choice;
  uint64_t numel;
  std::vector<uint64_t> elems;  // listed, with the values 1, 2, 3, ...
  bool pack = false;
};

std::vector<uint64_t> range(uint64_t begin, uint64_t end) {
  std::vector<uint64_t> numbers(end - begin);
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

const std::vector<Example>& examples() {
  static const std::vector<uint64_t> some = {3, 5, 130, 192, 193, 194, 195, 196, 197, 198, 199};
  static const std::vector<uint64_t> full_words = [] {
    auto elems = range(64, 136);
    elems.insert(elems.begin(), 5);
    return elems;
  }();
  static const std::vector<Example> all = {
      {"dense", Choice::dense, 6, {1, 4}},
      {"words", Choice::words, 200, some},
      {"words-elias-fano", Choice::words, 12800, {70, 12793}},
      {"words-full", Choice::words, 136, full_words},
      {"positions", Choice::positions, 200, some},
      {"bitmap", Choice::bitmap, 200, some},
      {"coo", Choice::coo, 200, some},
      {"blocks", Choice::blocks, 1034, {1025, 1026}},
      {"packed", Choice::cheapest, 64, range(0, 64), true},
  };
  return all;
}

// The hex digits between "<!-- example: NAME -->" and the end of the code block that follows;
// everything behind a # is commentary.
std::map<std::string, Bytes> examples_of_page() {
  const std::string path = ZENSYNC_SOURCE_DIR "/docs/wire-format.md";
  std::ifstream page(path);
  EXPECT_TRUE(page) << "cannot read " << path;
  std::map<std::string, Bytes> found;
  std::string line, name;
  const std::string marker = "<!-- example: ";
  for (bool in_block = false; std::getline(page, line);) {
    if (line.starts_with(marker))
      name = line.substr(marker.size(), line.find(" -->") - marker.size());
    if (line.starts_with("```")) {
      in_block = !in_block && !name.empty();
      if (!in_block) name.clear();
    } else if (in_block) {
      std::istringstream digits(line.substr(0, line.find('#')));
      for (std::string pair; digits >> pair;)
        found[name].push_back(static_cast<uint8_t>(std::stoul(pair, nullptr, 16)));
    }
  }
  return found;
}

uint16_t bf16_of(size_t number) {
  return from_float<bf16>(static_cast<float>(number)).bits;
}

ShardSelection selection_of(const Example& example, const Shard& shard) {
  const auto& elems = example.elems;
  ShardSelection selection = test::select_if(shard, DType::bf16, [&](uint64_t elem) {
    return std::find(elems.begin(), elems.end(), elem) != elems.end();
  });
  for (size_t at = 0; at < elems.size(); ++at) {
    const uint16_t value = bf16_of(at + 1);
    std::memcpy(selection.message.data + kHeaderBytes + at * 2, &value, 2);
  }
  return selection;
}

std::shared_ptr<const Placement> placement_of(const Example& example) {
  return Placement::make(PlacementKind::whole, example.numel, 1, 0);
}

std::string hex(const Bytes& bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size(); ++at) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += at % 16 == 0 ? "\n" : " ";
    text += {kDigits[bytes[at] >> 4], kDigits[bytes[at] & 15]};
  }
  return text;
}

TEST(WireFormat, the_page_has_exactly_these_examples) {
  std::vector<std::string> expected, found;
  for (const Example& example : examples()) expected.push_back(example.name);
  for (const auto& [name, bytes] : examples_of_page()) found.push_back(name);
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(found, expected);
}

TEST(WireFormat, encoding_the_examples_makes_the_bytes_of_the_page) {
  auto page = examples_of_page();
  for (const Example& example : examples()) {
    const auto placement = placement_of(example);
    const Buffer message = encode(selection_of(example, placement->shard(0, placement->all())),
                                  {example.choice, example.pack}, kIdentity, heap_buffer);
    const auto* data = reinterpret_cast<const uint8_t*>(message.data);
    const Bytes made(data, data + message.bytes);
    EXPECT_EQ(hex(page[example.name]), hex(made)) << example.name;
  }
}

// Every element that a message lists, with its value.
std::map<uint64_t, uint16_t> listed_by(const OpenMessage& opened, const Shard& shard) {
  std::map<uint64_t, uint16_t> listed;
  const uint64_t* mask = opened.mask_list();
  const std::byte* value = opened.values;
  for (uint64_t slot = 0; slot < shard.slots; ++slot) {
    if (!bit_at(opened.presence_bits(), slot)) continue;
    for (uint64_t rest = *mask++; rest != 0; rest &= rest - 1, value += 2)
      std::memcpy(&listed[shard.word(slot) * 64 + static_cast<uint64_t>(std::countr_zero(rest))],
                  value, 2);
  }
  return listed;
}

TEST(WireFormat, the_bytes_of_the_page_decode_to_the_examples) {
  auto page = examples_of_page();
  for (const Example& example : examples()) {
    SCOPED_TRACE(example.name);
    const auto placement = placement_of(example);
    const Shard shard = placement->shard(0, placement->all());
    Bytes& bytes = page[example.name];
    const Buffer message{reinterpret_cast<std::byte*>(bytes.data()), bytes.size(), nullptr};
    const auto listed = listed_by(open(message, shard, DType::bf16, kIdentity, heap_buffer), shard);
    std::map<uint64_t, uint16_t> expected;
    for (size_t at = 0; at < example.elems.size(); ++at)
      expected[example.elems[at]] = bf16_of(at + 1);
    for (const auto& [elem, value] : listed) expected.try_emplace(elem, uint16_t{0});
    EXPECT_EQ(listed, expected);
    // Zeros may only be added by the encodings that send whole words.
    if (example.choice == Choice::dense) {
      EXPECT_EQ(listed.size(), example.numel);
    } else if (example.choice == Choice::blocks) {
      EXPECT_EQ(listed.size(), 10u);
    } else {
      EXPECT_EQ(listed.size(), example.elems.size());
    }
  }
}

}  // namespace
}  // namespace zen
