// Writes the seed corpus of the fuzzers, tests/fuzz/corpus/NAME_fuzz: well-formed messages of every
// encoding, packed and not, and packed values. To be run again when the wire format changes.
//
//   make_seeds CORPUS_FOLDER
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/select.h"
#include "core/value_packing.h"
#include "open_input.h"
#include "selections.h"

namespace zen::fuzz {
namespace {

using Bytes = std::vector<uint8_t>;

void write_file(const std::filesystem::path& path, const Bytes& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

// A share of `density` of the values is normally distributed, the others are zero.
Bytes values_of(DType dtype, size_t count, double density) {
  std::mt19937 random(static_cast<uint32_t>(count));
  std::normal_distribution<float> normal;
  Bytes values(count * size_of(dtype));
  for (size_t elem = 0; elem < count; ++elem)
    with_type(dtype, [&]<class T>(T) {
      const T value = from_float<T>(random() % 1000 < density * 1000 ? normal(random) : 0.0f);
      std::memcpy(values.data() + elem * sizeof(T), &value, sizeof(T));
    });
  return values;
}

Bytes message_seed(uint8_t size, DType dtype, const EncodeOptions& options, double density) {
  const uint64_t numel = elements_of(size);
  const auto placement = Placement::make(PlacementKind::whole, numel, 1, 0);
  Bytes values = values_of(dtype, numel, density);
  const Buffer data{reinterpret_cast<std::byte*>(values.data()), values.size(), nullptr};
  Selection selection =
      select({data, dtype, numel}, *placement, placement->all(), test::heap_buffer);
  const Buffer message = encode(std::move(selection[0]), options, Identity{}, test::heap_buffer);
  Bytes seed{size, static_cast<uint8_t>(dtype)};
  const auto* bytes = reinterpret_cast<const uint8_t*>(message.data);
  seed.insert(seed.end(), bytes, bytes + message.bytes);
  return seed;
}

void write_messages(const std::filesystem::path& folder) {
  const std::pair<const char*, Choice> choices[] = {
      {"dense", Choice::dense},   {"words", Choice::words}, {"positions", Choice::positions},
      {"bitmap", Choice::bitmap}, {"coo", Choice::coo},     {"blocks", Choice::blocks}};
  for (const auto& [name, choice] : choices)
    for (const bool pack : {false, true})
      for (const auto& [size, density] : {std::pair{7, 0.1}, {6, 0.5}, {5, 1.0}}) {
        const auto dtype = static_cast<DType>(size % 3);
        write_file(folder / (std::string(name) + (pack ? "-packed-" : "-") + std::to_string(size)),
                   message_seed(static_cast<uint8_t>(size), dtype, {choice, pack}, density));
      }
}

void write_values(const std::filesystem::path& folder) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const size_t count : {size_t{70}, size_t{330}}) {
      const Bytes values = values_of(dtype, count, 0.9);
      std::vector<std::byte> packed(max_packed_bytes(dtype, count));
      const auto* raw = reinterpret_cast<const std::byte*>(values.data());
      packed.resize(pack_values(dtype, raw, count, packed.data()));
      const std::string name = std::string(name_of(dtype)) + "-" + std::to_string(count);
      Bytes seed{0, static_cast<uint8_t>(dtype), static_cast<uint8_t>(count),
                 static_cast<uint8_t>(count >> 8)};
      for (const std::byte byte : packed) seed.push_back(static_cast<uint8_t>(byte));
      write_file(folder / (name + "-packed"), seed);
      Bytes plain{1, static_cast<uint8_t>(dtype), 0, 0};
      plain.insert(plain.end(), values.begin(), values.end());
      write_file(folder / (name + "-values"), plain);
    }
}

}  // namespace
}  // namespace zen::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_seeds CORPUS_FOLDER\n");
    return 2;
  }
  const std::filesystem::path corpus = argv[1];
  zen::fuzz::write_messages(corpus / "open_fuzz");
  zen::fuzz::write_values(corpus / "value_packing_fuzz");
  return 0;
}
