#include "torch/poll.h"

#include <gtest/gtest.h>

namespace zen {
namespace {

using namespace std::chrono_literals;

TEST(Poll, ends_as_soon_as_it_is_done) {
  int questions = 0;
  EXPECT_TRUE(poll_until([&] { return ++questions == 100; }, 1h));
  EXPECT_EQ(questions, 100);
  EXPECT_TRUE(poll_until([] { return true; }, 0ns));
}

TEST(Poll, gives_up_at_the_deadline_and_not_before) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(poll_until([] { return false; }, 5ms));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 5ms);
}

// What is done between the last question and the deadline counts.
TEST(Poll, asks_once_more_when_the_time_is_up) {
  int questions = 0;
  EXPECT_TRUE(poll_until([&] { return ++questions == 2; }, 0ns));
}

TEST(Poll, an_error_of_the_question_ends_it) {
  EXPECT_THROW(poll_until([]() -> bool { throw 1; }, 1h), int);
}

}  // namespace
}  // namespace zen
