// Does a GPU make the bytes that the CPU makes, and how close do its kernels come to what its
// memory allows?
//
//   gpu_check [--cases N] [--elements N] [--repetitions N] [--json FILE]
//
// Compared with a copy in the same run. Ends with status 1 if anything differed.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "checks.h"
#include "speed.h"

#ifdef ZEN_CUDA_SIMULATOR
#include "simulator/machine.h"
#endif

namespace zen::bench {
namespace {

struct Options {
  uint64_t cases = 200, elements = uint64_t{32} << 20;
  int repetitions = 20;
  std::string json;
};

Options parse(int count, char** arguments) {
  Options options;
  for (int at = 1; at + 1 < count; at += 2) {
    const std::string name = arguments[at];
    const char* value = arguments[at + 1];
    if (name == "--cases") options.cases = std::strtoull(value, nullptr, 10);
    if (name == "--elements") options.elements = std::strtoull(value, nullptr, 10);
    if (name == "--repetitions") options.repetitions = std::atoi(value);
    if (name == "--json") options.json = value;
  }
  return options;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) result += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
  return result + "\"";
}

void write_json(const Options& options, const std::vector<std::string>& differences,
                const std::vector<Timing>& timings) {
  std::ofstream out(options.json);
  out << "{\"gpu\": " << quoted(Gpu::name()) << ", \"cases\": " << options.cases
      << ", \"elements\": " << options.elements << ", \"differences\": [";
  for (size_t at = 0; at < differences.size(); ++at)
    out << (at == 0 ? "" : ", ") << quoted(differences[at]);
  out << "], \"timings\": [";
  for (size_t at = 0; at < timings.size(); ++at) {
    const Timing& timing = timings[at];
    const double copy = timings[0].bytes / timings[0].seconds;
    out << (at == 0 ? "" : ", ") << "\n  {\"what\": " << quoted(timing.what)
        << ", \"seconds\": " << timing.seconds << ", \"bytes\": " << timing.bytes
        << ", \"share_of_copy\": " << timing.bytes / timing.seconds / copy << "}";
  }
  out << "\n]}\n";
}

int run(const Options& options) {
#ifdef ZEN_CUDA_SIMULATOR
  simulator::Machine machine(1);
  const simulator::Use use(machine);
#endif
  Gpu gpu;
  const auto differences = check_steps(gpu, options.cases);
  std::printf("%s: %llu exchanges, %zu of them unlike the CPU's\n", Gpu::name().c_str(),
              static_cast<unsigned long long>(options.cases), differences.size());
  for (const std::string& difference : differences) std::printf("  %s\n", difference.c_str());
  const auto timings = time_steps(gpu, options.elements, options.repetitions);
  for (const Timing& timing : timings)
    std::printf("%-40s %10.1f us %8.1f GB/s\n", timing.what.c_str(), timing.seconds * 1e6,
                timing.bytes / timing.seconds / 1e9);
  if (!options.json.empty()) write_json(options, differences, timings);
  return differences.empty() ? 0 : 1;
}

}  // namespace
}  // namespace zen::bench

int main(int count, char** arguments) {
  try {
    return zen::bench::run(zen::bench::parse(count, arguments));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
