#include "schemes/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "schemes/pipeline.h"
#include "schemes/ranks.h"
#include "schemes/thread_transport.h"

namespace zen {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr Watch::Timing kQuick{
    .tick = milliseconds(5), .patience = milliseconds(40), .answer = milliseconds(200)};

// The texts of one group.
class Texts {
 public:
  std::optional<std::string> read(const std::string& key) {
    const std::lock_guard lock(mutex_);
    ++calls_;
    const auto found = texts_.find(key);
    return found == texts_.end() ? std::nullopt : std::optional(found->second);
  }
  void write(const std::string& key, const std::string& text) { replace(key, read(key), text); }
  std::string replace(const std::string& key, const std::optional<std::string>& expected,
                      const std::string& text) {
    const std::lock_guard lock(mutex_);
    ++calls_;
    const auto found = texts_.find(key);
    const std::string now = found == texts_.end() ? "" : found->second;
    if (now == expected.value_or("")) texts_[key] = text;
    return texts_[key];
  }
  int calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> texts_;
  int calls_ = 0;
};

class SharedBoard final : public Board {
 public:
  explicit SharedBoard(Texts& texts) : texts_(texts) {}
  std::optional<std::string> read(const std::string& key) override { return texts_.read(key); }
  void write(const std::string& key, const std::string& text) override { texts_.write(key, text); }
  std::string replace(const std::string& key, const std::string& expected,
                      const std::string& text) override {
    return texts_.replace(key, expected, text);
  }

 private:
  Texts& texts_;
};

// What a rank does with one bucket.
struct Bucket {
  uint64_t layout = 1;
  milliseconds late{0};
};

// Tells everybody something under a tag with the layout, as schemes do, and waits for the others.
class Chatter final : public Exchange {
 public:
  Chatter(Transport& transport, uint32_t layout, uint32_t sequence)
      : transport_(transport), tag_{.layout = layout, .sequence = sequence} {}

  void prepare() override {}
  void post() override {
    std::vector<Expected> from;
    std::vector<Outgoing> messages;
    for (int peer = 0; peer < transport_.size(); ++peer) {
      if (peer == transport_.rank()) continue;
      from.push_back({peer, sizeof(word_)});
      messages.push_back({peer, {word_, sizeof(word_), nullptr}});
    }
    ticket_ = transport_.expect(tag_, from);
    transport_.send(ticket_, messages);
  }
  void finish() override { transport_.wait(ticket_); }
  Report report() const override { return {}; }

 private:
  Transport& transport_;
  Tag tag_;
  Ticket ticket_ = 0;
  std::byte word_[8] = {};
};

class ChatterTask final : public Task {
 public:
  ChatterTask(Transport& transport, int number, Bucket bucket, std::vector<std::string>& failures)
      : transport_(transport), number_(number), bucket_(bucket), failures_(failures) {}

  std::string name() const override { return "bucket " + std::to_string(number_); }
  std::string where() const override { return name() + " of iteration 9"; }
  std::string_view stage() const override { return "push"; }
  Layout layout() override {
    return {bucket_.layout, "layout " + std::to_string(bucket_.layout), false};
  }
  std::unique_ptr<Exchange> exchange(uint32_t sequence) override {
    return std::make_unique<Chatter>(transport_, static_cast<uint32_t>(bucket_.layout), sequence);
  }
  void done(const Report&, const Traffic&) noexcept override {}
  void failed(const std::string& message) noexcept override { failures_.push_back(message); }

 private:
  Transport& transport_;
  int number_;
  Bucket bucket_;
  std::vector<std::string>& failures_;
};

// Each rank's failures, where rank r does as plans[r] says.
std::vector<std::vector<std::string>> run(const std::vector<std::vector<Bucket>>& plans,
                                          Texts& texts, milliseconds timeout,
                                          const Watch::Timing& timing = kQuick) {
  const int ranks = static_cast<int>(plans.size());
  ThreadGroup group(ranks, {.timeout = timeout});
  std::vector<std::unique_ptr<Watch>> watches;  // a rank that is through with its plan is idle
  for (int rank = 0; rank < ranks; ++rank)
    watches.push_back(std::make_unique<Watch>(
        std::make_unique<SharedBoard>(texts), rank, ranks,
        [&transport = group.transport(rank)] { transport.fail(); }, timing));
  std::vector<std::vector<std::string>> failures(plans.size());
  scheme_test::run_ranks(group, [&](int rank) {
    Pipeline pipeline(group.transport(rank), watches[rank].get());
    int number = 0;
    for (const Bucket& bucket : plans[rank]) {
      std::this_thread::sleep_for(bucket.late);
      pipeline.start(
          std::make_unique<ChatterTask>(group.transport(rank), number++, bucket, failures[rank]));
      if (pipeline.in_flight() == 2) pipeline.finish_oldest();
    }
    while (pipeline.in_flight() > 0) pipeline.finish_oldest();
  }).rethrow();
  return failures;
}

TEST(Watch, ranks_with_another_layout_at_the_same_bucket_all_learn_both_views) {
  // Layout 2 is new to everybody, or known; a second bucket may be in flight behind it.
  const std::vector<std::vector<std::vector<Bucket>>> plans{
      {{{1}, {1}, {1}, {1}}, {{1}, {1}, {1}, {2}}},
      {{{1}, {2}, {1}, {1}}, {{1}, {2}, {1}, {2}}},
      {{{1}, {1}, {1}}, {{1}, {2}, {2}}, {{1}, {1}, {1}}},
  };
  for (const auto& plan : plans) {
    Texts texts;
    const auto failures = run(plan, texts, std::chrono::hours(1));
    for (const auto& of_rank : failures) {
      ASSERT_FALSE(of_rank.empty());
      EXPECT_THAT(of_rank[0], AllOf(HasSubstr("the ranks do not mean the same: rank"),
                                    HasSubstr("rank 1: layout 2"), HasSubstr(": layout 1"),
                                    HasSubstr("(use the same model, tensors and options")));
      EXPECT_THAT(of_rank[0], Not(HasSubstr("a rank died")));
    }
  }
}

TEST(Watch, rank_that_is_only_late_is_waited_for) {
  Texts texts;
  const auto failures =
      run({{{1}, {1}, {1}}, {{1}, {1, milliseconds(300)}, {1}}}, texts, std::chrono::hours(1));
  EXPECT_THAT(failures, Each(IsEmpty()));
  EXPECT_GT(texts.calls(), 0) << "the delay was too short for anything to be told";
}

TEST(Watch, says_who_was_late_when_the_time_is_up) {
  Texts texts;
  const auto failures = run({{{1}, {1}}, {{1}}, {{1}, {1}}}, texts, milliseconds(1000));
  EXPECT_THAT(failures[1], IsEmpty());
  for (const int rank : {0, 2}) {
    ASSERT_THAT(failures[rank], SizeIs(1));
    EXPECT_THAT(failures[rank][0], HasSubstr("a rank died, failed or was later"));
  }
  // The one whose time was up first asked before anybody knew of a failure.
  EXPECT_THAT(failures[0][0] + failures[2][0],
              HasSubstr("rank 1 has not started bucket 1 of iteration 9"));
}

// Answers when the test is over.
class SilentBoard final : public Board {
 public:
  explicit SilentBoard(std::shared_future<void> end) : end_(std::move(end)) {}
  std::optional<std::string> read(const std::string&) override { return silence(), std::nullopt; }
  void write(const std::string&, const std::string&) override { silence(); }
  std::string replace(const std::string&, const std::string&, const std::string&) override {
    return silence(), "";
  }

 private:
  void silence() { end_.wait(); }

  std::shared_future<void> end_;
};

TEST(Watch, leaves_a_silent_board_behind) {
  std::promise<void> end;
  {
    Watch watch(
        std::make_unique<SilentBoard>(end.get_future().share()), 0, 2,
        [] { ADD_FAILURE() << "nothing is known that would be a reason to fail"; }, kQuick);
    watch.started({.sequence = 0, .where = "bucket 0", .fingerprint = 1, .description = "layout"});
    EXPECT_EQ(watch.explain().text, "");
  }
  end.set_value();
}

class BrokenBoard final : public Board {
 public:
  std::optional<std::string> read(const std::string&) override { throw std::runtime_error("gone"); }
  void write(const std::string&, const std::string&) override { throw std::runtime_error("gone"); }
  std::string replace(const std::string&, const std::string&, const std::string&) override {
    throw std::runtime_error("gone");
  }
};

TEST(Watch, does_without_a_board_that_is_gone) {
  Watch watch(
      std::make_unique<BrokenBoard>(), 0, 2,
      [] { ADD_FAILURE() << "nothing is known that would be a reason to fail"; }, kQuick);
  watch.started({.sequence = 0, .where = "bucket 0", .fingerprint = 1, .description = "layout"});
  const Explanation known = watch.explain();
  EXPECT_FALSE(known.disagreement);
  EXPECT_EQ(known.text, "");
}

TEST(Watch, tells_nothing_while_buckets_come_and_go) {
  Texts texts;
  const std::vector<Bucket> buckets(200);
  run({buckets, buckets}, texts, std::chrono::hours(1),
      {.tick = milliseconds(1), .patience = std::chrono::minutes(10), .answer = milliseconds(200)});
  EXPECT_EQ(texts.calls(), 0);
}

}  // namespace
}  // namespace zen
