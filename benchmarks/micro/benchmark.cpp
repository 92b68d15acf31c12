#include "benchmark.h"

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
  try {
    return zen::bench::run_benchmark(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}
