// The one main() of the micro benchmarks (benchmark.cpp): reports what run_benchmark() throws.
#pragma once

namespace zen::bench {

// What a *_benchmark.cpp does; returns the exit status of its program.
int run_benchmark(int argc, char** argv);

}  // namespace zen::bench
