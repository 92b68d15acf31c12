// Why Algorithm 1 claims a slot by compare-and-swap: every interleaving of two threads that reach
// the same free slot, for the paper's technique 4 and for ours.

#include <gtest/gtest.h>

#include <array>

namespace zen {
namespace {

struct Outcome {
  int interleavings = 0;
  int lossy = 0;
};

// One thread's attempt to store `value` in the shared slot, a step at a time.
struct ReadAfterWrite {
  static constexpr int kSteps = 3;
  int value, step = 0;
  bool saw_free = false, kept = false;

  void advance(int& slot) {
    if (step == 0) saw_free = slot == 0;
    if (step == 1 && saw_free) slot = value;
    if (step == 2 && saw_free) kept = slot == value;  // otherwise rehash or go serial
    ++step;
  }
};

struct CompareAndSwap {
  static constexpr int kSteps = 2;
  int value, step = 0;
  bool saw_free = false, kept = false;

  void advance(int& slot) {
    if (step == 0) saw_free = slot == 0;
    if (step == 1 && saw_free && slot == 0) slot = value, kept = true;  // one atomic step
    ++step;
  }
};

// A loss is a thread that goes on in the belief that the slot holds its value when it does not.
template <class Thread>
Outcome try_all_interleavings(std::array<Thread, 2> threads, int slot) {
  if (threads[0].step == Thread::kSteps && threads[1].step == Thread::kSteps) {
    const auto lost = [slot](const Thread& thread) { return thread.kept && slot != thread.value; };
    return {1, lost(threads[0]) || lost(threads[1])};
  }
  Outcome total;
  for (size_t turn = 0; turn < 2; ++turn) {
    if (threads[turn].step == Thread::kSteps) continue;
    auto next = threads;
    int next_slot = slot;
    next[turn].advance(next_slot);
    const Outcome outcome = try_all_interleavings(next, next_slot);
    total.interleavings += outcome.interleavings;
    total.lossy += outcome.lossy;
  }
  return total;
}

TEST(ReadAfterWrite, loses_an_index_in_4_of_20_interleavings) {
  const auto outcome = try_all_interleavings<ReadAfterWrite>({{{.value = 1}, {.value = 2}}}, 0);
  EXPECT_EQ(outcome.interleavings, 20);
  EXPECT_EQ(outcome.lossy, 4);
}

TEST(ReadAfterWrite, compare_and_swap_loses_none) {
  const auto outcome = try_all_interleavings<CompareAndSwap>({{{.value = 1}, {.value = 2}}}, 0);
  EXPECT_EQ(outcome.interleavings, 6);
  EXPECT_EQ(outcome.lossy, 0);
}

}  // namespace
}  // namespace zen
