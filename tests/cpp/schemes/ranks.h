// Runs the ranks of a group as threads.
#pragma once

#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "schemes/thread_transport.h"

namespace zen::scheme_test {

// How each rank ended. A rank that throws says fail() first, as the engine does.
struct Outcome {
  std::vector<std::string> errors;  // by rank; empty for a rank that returned
  std::exception_ptr first;         // in time: the root cause

  bool ok() const { return !first; }
  void rethrow() const {
    if (first) std::rethrow_exception(first);
  }
};

// Calls body(rank) on a thread per rank and joins them all.
template <class Body>
Outcome run_ranks(ThreadGroup& group, const Body& body) {
  Outcome outcome{.errors = std::vector<std::string>(group.size()), .first = nullptr};
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        {
          const std::lock_guard lock(mutex);
          outcome.errors[rank] = error.what();
          if (!outcome.first) outcome.first = std::current_exception();
        }
        group.transport(rank).fail();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcome;
}

}  // namespace zen::scheme_test
