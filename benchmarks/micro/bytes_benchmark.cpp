// How many bytes does synchronising take, beside the paper's formats and beside what it must take?
// Nothing is timed: messages are encoded and measured. Prints the two tables of
// docs/wire-format.md; message_size_test demands that the page has these rows.
//
//   bytes_benchmark
#include <cstdio>
#include <exception>

#include "../../tests/cpp/message_sizes.h"
#include "benchmark.h"

namespace zen {
namespace {

void print_bytes() {
  std::printf("Bytes that a rank receives for each element, 16 ranks, scattered non-zeros:\n\n");
  std::printf(
      "| push / pull | values | dense | COO | paper | zensync | packed | entropy | paper / zensync "
      "| zensync / entropy |\n|---|---|---|---|---|---|---|---|---|---|\n");
  for (const std::string& row : test::bytes_rows()) std::printf("%s\n", row.c_str());
}

void print_overheads() {
  std::printf("\nBytes of the cheapest message over entropy and 16-bit values:\n\n| listed |");
  for (const double density : test::kOverheadDensities) std::printf(" %g%% |", density * 100);
  std::printf("\n|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const auto& [name, row] : {std::pair{"scattered elements", 1},
                                  {"aligned rows of 64", 64},
                                  {"aligned rows of 512", 512}}) {
    std::vector<double> overheads;
    for (const double density : test::kOverheadDensities)
      overheads.push_back(test::overhead(density, static_cast<uint64_t>(row)));
    std::printf("%s\n", test::overhead_row(name, overheads).c_str());
  }
}

}  // namespace
}  // namespace zen

int zen::bench::run_benchmark(int, char**) {
  print_bytes();
  print_overheads();
  return 0;
}
