// How large messages become beside what they say: the tables of docs/wire-format.md, which
// bytes_benchmark prints and message_size_test compares with the page. Sizes depend on counts
// alone, so positions are drawn in slot order and the owners are ranges.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/codec.h"
#include "selections.h"

namespace zen::test {

constexpr int kOwners = 16;
constexpr double kLn2 = 0.6931471805599453;

// log2 of the number of ways to choose `count` of `total` things.
inline double choice_bits(double total, double count) {
  return (std::lgamma(total + 1) - std::lgamma(count + 1) - std::lgamma(total - count + 1)) / kLn2;
}

// Chosen with probability `density` each, by their gaps.
inline std::vector<uint64_t> choose(uint64_t total, double density, std::mt19937_64& random) {
  std::geometric_distribution<uint64_t> gap(density);
  std::vector<uint64_t> chosen;
  for (uint64_t at = gap(random); at < total; at += 1 + gap(random)) chosen.push_back(at);
  return chosen;
}

// Lists rows of `row` elements: presence, masks and counts, with values left as they are.
inline ShardSelection select_rows(const Shard& shard, const std::vector<uint64_t>& rows,
                                  uint64_t row) {
  ShardSelection selection;
  selection.shard = shard;
  selection.dtype = DType::bf16;
  selection.presence = heap_buffer(shard.presence_words() * 8);
  auto* presence = reinterpret_cast<uint64_t*>(selection.presence.data);
  std::fill_n(presence, shard.presence_words(), uint64_t{0});
  std::vector<uint64_t> masks;
  for (const uint64_t number : rows)
    for (uint64_t elem = number * row; elem < (number + 1) * row;) {
      const uint64_t slot = elem / kWordElems, length = std::min(row, kWordElems);
      if (!bit_at(presence, slot)) masks.push_back(0);
      set_bit(presence, slot);
      masks.back() |= low_bits(length) << elem % kWordElems;
      elem += length;
    }
  for (const uint64_t mask : masks) selection.full_words += mask == ~uint64_t{0};
  selection.count = rows.size() * row;
  selection.present_words = masks.size();
  selection.masks = heap_buffer(masks.size() * 8);
  if (!masks.empty()) std::memcpy(selection.masks.data, masks.data(), masks.size() * 8);
  selection.message = heap_buffer(kHeaderBytes + selection.count * 2);
  return selection;
}

// Total bytes of the cheapest messages over (entropy of the positions + values).
inline double overhead(double density, uint64_t row) {
  // Enough to make headers and padding small: 16,000 values a message, 8 million elements in all.
  const double wanted = std::max(8e6, kOwners * 16000 / density);
  const uint64_t numel = static_cast<uint64_t>(wanted) / (kOwners * 512) * (kOwners * 512);
  const auto placement = Placement::make(PlacementKind::ranges, numel, kOwners, 0);
  std::mt19937_64 random(7);
  double bytes = 0, ideal_bits = 0;
  for (int owner = 0; owner < kOwners; ++owner) {
    const Shard shard = placement->shard(owner, placement->all());
    const auto chosen = choose(shard.elements / row, density, random);
    ideal_bits +=
        choice_bits(static_cast<double>(shard.elements / row), static_cast<double>(chosen.size())) +
        16.0 * static_cast<double>(chosen.size() * row);
    const Buffer message =
        encode(select_rows(shard, chosen, row), Choice::cheapest, Identity{}, heap_buffer);
    bytes += static_cast<double>(message.bytes);
  }
  return bytes * 8 / ideal_bits;
}

inline constexpr double kOverheadDensities[] = {0.0001, 0.001, 0.01, 0.05, 0.1,
                                                0.2,    0.25,  0.3,  0.4,  0.6};

template <class... Parts>
std::string format(const char* pattern, Parts... parts) {
  char text[200];
  std::snprintf(text, sizeof text, pattern, parts...);
  return text;
}

// One row of the table of overheads.
inline std::string overhead_row(const std::string& name, const std::vector<double>& overheads) {
  std::string row = "| " + name + " |";
  for (const double overhead : overheads) row += format(" %.3f |", overhead);
  return row;
}

// --- What a rank receives with 16 ranks
// ---------------------------------------------------------------------

constexpr uint64_t kBytesElements = uint64_t{32} << 20;  // of the gradient

// Close to a normal number, times the scale of its layer of 4096 values, from integers alone so
// that the sizes are the same everywhere.
inline float layered_value(uint64_t number, std::mt19937_64& random) {
  int64_t sum = 0;
  for (int draw = 0; draw < 2; ++draw)
    for (uint64_t bits = random(), part = 0; part < 4; ++part, bits >>= 16) sum += bits & 0xffff;
  const auto normal = static_cast<float>(2 * (sum - 8 * 32768) + 1);
  return std::ldexp(normal, -static_cast<int>(fmix32(static_cast<uint32_t>(number / 4096)) % 10));
}

// Bytes of the messages that one shard's share of the elements takes.
struct ShardBytes {
  double coo = 0, bitmap = 0, cheapest = 0, packed = 0, entropy = 0;
};

inline ShardBytes shard_bytes(DType dtype, double density) {
  const auto placement = Placement::make(PlacementKind::ranges, kBytesElements, kOwners, 0);
  const Shard shard = placement->shard(0, placement->all());
  const auto made = [&](const EncodeOptions& options) {
    ShardSelection selection = select_if(shard, dtype, uniform(density, 1));
    std::mt19937_64 random(1);
    for (uint64_t i = 0; i < selection.count; ++i)
      with_type(dtype, [&]<class T>(T) {
        const T value = from_float<T>(layered_value(i, random));
        std::memcpy(selection.message.data + kHeaderBytes + i * sizeof value, &value, sizeof value);
      });
    const auto count = static_cast<double>(selection.count);
    const auto elements = static_cast<double>(shard.elements);
    const double ideal =
        choice_bits(elements, count) / 8 + count * static_cast<double>(size_of(dtype));
    const Buffer message = encode(std::move(selection), options, Identity{}, heap_buffer);
    return std::pair(static_cast<double>(message.bytes), ideal);
  };
  const auto [cheapest, ideal] = made(Choice::cheapest);
  return {made(Choice::coo).first, made(Choice::bitmap).first, cheapest,
          made({Choice::cheapest, true}).first, ideal};
}

// Bytes received for each element of the gradient, by a rank that pushes with one density and pulls
// with another.
inline std::string bytes_row(DType dtype, double push, double pull) {
  const ShardBytes up = shard_bytes(dtype, push), down = shard_bytes(dtype, pull);
  constexpr double kShare = (kOwners - 1) / static_cast<double>(kBytesElements);
  const double paper = (up.coo + down.bitmap) * kShare,
               ours = (up.cheapest + down.cheapest) * kShare;
  const double dense = 2.0 * (kOwners - 1) / kOwners * static_cast<double>(size_of(dtype));
  return format("| %g / %g%% | %s | %.3f | %.4f | %.4f | %.4f | %.4f | %.4f | %.2f | %.3f |",
                push * 100, pull * 100, name_of(dtype), dense, (up.coo + down.coo) * kShare, paper,
                ours, (up.packed + down.packed) * kShare, (up.entropy + down.entropy) * kShare,
                paper / ours, ours / ((up.entropy + down.entropy) * kShare));
}

inline std::vector<std::string> bytes_rows() {
  std::vector<std::string> rows;
  for (const auto& [push, pull] :
       {std::pair{0.001, 0.01}, {0.01, 0.05}, {0.01, 0.1}, {0.05, 0.2}, {0.05, 0.4}, {0.1, 0.6}})
    rows.push_back(bytes_row(DType::bf16, push, pull));
  for (const auto& [push, pull] : {std::pair{0.01, 0.1}, {0.05, 0.4}})
    rows.push_back(bytes_row(DType::f32, push, pull));
  return rows;
}

}  // namespace zen::test
