#include "torch/job_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace zen {
namespace {

using Queue = JobQueue<std::unique_ptr<int>>;

TEST(JobQueue, hands_jobs_over_in_order) {
  Queue queue;
  std::vector<int> taken;
  std::thread taker([&] {
    while (auto job = queue.take()) taken.push_back(**job);
  });
  std::vector<int> given;
  for (int number = 0; number < 1000; ++number) {
    given.push_back(number);
    EXPECT_TRUE(queue.push(std::make_unique<int>(number)));
  }
  queue.close();
  taker.join();
  EXPECT_EQ(taken, given) << "what was pushed before close() is still taken";
}

TEST(JobQueue, try_take_does_not_wait) {
  Queue queue;
  EXPECT_FALSE(queue.try_take().has_value());
  queue.push(std::make_unique<int>(5));
  EXPECT_EQ(**queue.try_take(), 5);
  EXPECT_FALSE(queue.try_take().has_value());
}

TEST(JobQueue, close_ends_a_wait) {
  Queue queue;
  std::thread taker([&] { EXPECT_FALSE(queue.take().has_value()); });
  queue.close();
  taker.join();
}

TEST(JobQueue, closed_queue_leaves_the_job_with_its_owner) {
  Queue queue;
  queue.close();
  auto job = std::make_unique<int>(7);
  EXPECT_FALSE(queue.push(std::move(job)));
  ASSERT_NE(job, nullptr);
  EXPECT_EQ(*job, 7);
}

}  // namespace
}  // namespace zen
