// A first-in, first-out queue between the threads that submit jobs and the one that runs them.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace zen {

template <class Job>
class JobQueue {
 public:
  // False if the queue is closed; the job is then untouched.
  bool push(Job&& job) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return false;
      jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
    return true;
  }

  // The oldest job, or nothing if there is none now.
  std::optional<Job> try_take() {
    const std::lock_guard lock(mutex_);
    return take_front();
  }

  // Waits for a job. Nothing if the queue is closed and empty.
  std::optional<Job> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !jobs_.empty(); });
    return take_front();
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

 private:
  std::optional<Job> take_front() {
    if (jobs_.empty()) return std::nullopt;
    std::optional<Job> job(std::move(jobs_.front()));
    jobs_.pop_front();
    return job;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool closed_ = false;
};

}  // namespace zen
