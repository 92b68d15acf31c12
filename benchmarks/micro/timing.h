// Processor times of operations that take turns, so that a slow moment of the machine meets all of
// them. With several threads each has an operation of its own, all begin together, and the slowest
// counts.
#pragma once

#include <algorithm>
#include <barrier>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <time.h>

namespace zen::bench {

// Of this thread: what other processes take does not count.
inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

inline double seconds_of(const std::function<void()>& run) {
  const double begin = thread_seconds();
  run();
  return thread_seconds() - begin;
}

// An operation to be timed, and the memory it touches on all threads together.
struct Task {
  std::string operation, encoding, bandwidth;
  size_t bytes = 0;
  std::vector<std::function<void()>> runs;  // one for each thread
  std::vector<double> seconds;

  double median() const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  double rate() const { return static_cast<double>(bytes) / median(); }
};

inline double run_once(const Task& task) {
  if (task.runs.size() == 1) return seconds_of(task.runs[0]);
  std::vector<double> seconds(task.runs.size());
  std::barrier start(static_cast<std::ptrdiff_t>(task.runs.size()));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < task.runs.size(); ++i)
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      seconds[i] = seconds_of(task.runs[i]);
    });
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(seconds.begin(), seconds.end());
}

inline void time_interleaved(std::vector<Task>& tasks, int repetitions) {
  for (int repetition = -1; repetition < repetitions; ++repetition)  // -1 warms up
    for (Task& task : tasks) {
      const double seconds = run_once(task);
      if (repetition >= 0) task.seconds.push_back(seconds);
    }
}

// The same task on all threads, each with its own memory.
inline Task on_all_threads(const std::vector<Task>& parts) {
  Task task = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    task.bytes += parts[i].bytes;
    task.runs.push_back(parts[i].runs[0]);
  }
  return task;
}

}  // namespace zen::bench
