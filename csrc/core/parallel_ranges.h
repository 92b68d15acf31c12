// Runs a function on equal, contiguous parts of a range, one thread a part.
#pragma once

#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace zen {

// Calls f(begin, end, part) for `threads` parts of [0, count), part 0 on the calling thread.
// Lengths differ by at most one. Rethrows the exception of the lowest part that failed. REQUIRES:
// threads >= 1.
template <class F>
void parallel_ranges(uint64_t count, int threads, F&& f) {
  const auto parts = static_cast<uint64_t>(threads);
  std::vector<std::exception_ptr> failures(parts);
  const auto run = [&](uint64_t part) {
    const auto bound = [&](uint64_t p) { return count / parts * p + count % parts * p / parts; };
    try {
      f(bound(part), bound(part + 1), static_cast<int>(part));
    } catch (...) {
      failures[part] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (uint64_t part = 1; part < parts; ++part) others.emplace_back(run, part);
    run(0);
  }
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace zen
