#include "schemes/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <utility>

#include "core/error.h"
#include "schemes/ranks.h"
#include "schemes/thread_transport.h"

namespace zen {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// What happened on one rank, in order.
struct Diary {
  std::vector<std::string> events;
  std::vector<std::string> failures;
};

// An exchange that only writes down what is asked of it; `act` may throw or use the transport.
class WrittenExchange final : public Exchange {
 public:
  using Act = std::function<void(const std::string& step)>;

  WrittenExchange(Diary& diary, std::string name, Act act)
      : diary_(diary), name_(std::move(name)), act_(std::move(act)) {}

  void prepare() override { note("prepare"); }
  void post() override { note("post"); }
  void finish() override { note("finish"); }
  Report report() const override { return {.nonzeros = 7, .nonzeros_summed = 9}; }

 private:
  void note(const std::string& step) {
    diary_.events.push_back(step + " " + name_);
    if (act_) act_(step);
  }

  Diary& diary_;
  std::string name_;
  Act act_;
};

struct TaskSpec {
  std::string name;
  uint64_t fingerprint = 1;
  bool always_agree = false;
  WrittenExchange::Act act = nullptr;
};

class WrittenTask final : public Task {
 public:
  WrittenTask(Diary& diary, TaskSpec spec) : diary_(diary), spec_(std::move(spec)) {}

  std::string name() const override { return spec_.name; }
  std::string_view stage() const override { return "middle"; }
  Layout layout() override {
    if (spec_.act) spec_.act("layout");
    return {spec_.fingerprint, "layout " + std::to_string(spec_.fingerprint), spec_.always_agree};
  }
  std::unique_ptr<Exchange> exchange(uint32_t sequence) override {
    return std::make_unique<WrittenExchange>(diary_, spec_.name + " #" + std::to_string(sequence),
                                             spec_.act);
  }
  void done(const Report& report, const Traffic&) noexcept override {
    EXPECT_EQ(report.nonzeros, 7u);
    diary_.events.push_back("done " + spec_.name);
  }
  void failed(const std::string& message) noexcept override { diary_.failures.push_back(message); }

 private:
  Diary& diary_;
  TaskSpec spec_;
};

void start(Pipeline& pipeline, Diary& diary, TaskSpec spec) {
  pipeline.start(std::make_unique<WrittenTask>(diary, std::move(spec)));
}

TEST(Pipeline, posts_a_bucket_while_the_one_before_is_in_flight) {
  ThreadGroup group(1);
  Pipeline pipeline(group.transport(0));
  Diary diary;
  start(pipeline, diary, {.name = "a"});
  start(pipeline, diary, {.name = "b"});
  EXPECT_EQ(pipeline.in_flight(), 2u);
  pipeline.finish_oldest();
  pipeline.finish_oldest();
  EXPECT_THAT(diary.events, ElementsAre("prepare a #0", "post a #0", "prepare b #1", "post b #1",
                                        "finish a #0", "done a", "finish b #1", "done b"));
  EXPECT_THAT(diary.failures, IsEmpty());
}

TEST(Pipeline, posts_only_after_the_bucket_before_over_an_ordered_transport) {
  ThreadGroup group(1, {.traits = kNcclTraits});
  Pipeline pipeline(group.transport(0));
  Diary diary;
  start(pipeline, diary, {.name = "a"});
  start(pipeline, diary, {.name = "b"});
  pipeline.finish_oldest();
  pipeline.finish_oldest();
  EXPECT_THAT(diary.events, ElementsAre("prepare a #0", "post a #0", "prepare b #1", "finish a #0",
                                        "done a", "post b #1", "finish b #1", "done b"));
}

TEST(Pipeline, agrees_on_a_new_layout_with_nothing_in_flight) {
  ThreadGroup group(1);
  Pipeline pipeline(group.transport(0));
  Diary diary;
  start(pipeline, diary, {.name = "a", .fingerprint = 1});
  start(pipeline, diary, {.name = "b", .fingerprint = 2});
  EXPECT_THAT(diary.events, ElementsAre("prepare a #0", "post a #0", "finish a #0", "done a",
                                        "prepare b #1", "post b #1"));
  EXPECT_EQ(group.calls(0), 2u) << "one agreement for each layout";
  start(pipeline, diary, {.name = "c", .fingerprint = 1});
  EXPECT_EQ(pipeline.in_flight(), 2u);
  EXPECT_EQ(group.calls(0), 2u) << "both layouts are known";
  start(pipeline, diary, {.name = "d", .fingerprint = 1, .always_agree = true});
  EXPECT_EQ(group.calls(0), 3u);
  EXPECT_EQ(pipeline.in_flight(), 1u);
}

// Runs the same buckets on every rank; spec(rank, number) describes them.
std::vector<Diary> run(ThreadGroup& group, int buckets,
                       const std::function<TaskSpec(int rank, int number)>& spec) {
  std::vector<Diary> diaries(group.size());
  const scheme_test::Outcome outcome = scheme_test::run_ranks(group, [&](int rank) {
    Pipeline pipeline(group.transport(rank));
    for (int number = 0; number < buckets; ++number)
      start(pipeline, diaries[rank], spec(rank, number));
    while (pipeline.in_flight() > 0) pipeline.finish_oldest();
  });
  outcome.rethrow();
  return diaries;
}

TEST(Pipeline, ranks_that_disagree_all_learn_what_each_of_them_means) {
  ThreadGroup group(3);
  const auto diaries = run(group, 1, [](int rank, int) {
    return TaskSpec{.name = "bucket 4", .fingerprint = rank == 1 ? 5u : 6u};
  });
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_THAT(diaries[rank].failures, SizeIs(1));
    const std::string& failure = diaries[rank].failures[0];
    EXPECT_THAT(failure,
                HasSubstr("zensync: rank " + std::to_string(rank) + ", bucket 4, stage agree: "));
    EXPECT_THAT(failure, HasSubstr("rank 1: layout 5, number 0 on this group"));
    EXPECT_THAT(failure, HasSubstr("rank 2: layout 6"));
    EXPECT_THAT(failure, HasSubstr("(use the same model, tensors and options on every rank)"));
  }
}

TEST(Pipeline, ranks_that_are_out_of_step_disagree) {
  ThreadGroup group(2);
  // Rank 0 has one bucket more of a layout that needs no agreement any more. Then both mean the
  // same new layout, but not the same bucket.
  const auto diaries = run(group, 3, [](int rank, int number) {
    return TaskSpec{.name = "bucket", .fingerprint = number < 2 - rank ? 1u : 2u};
  });
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_FALSE(diaries[rank].failures.empty()) << "rank " << rank;
    EXPECT_THAT(diaries[rank].failures[0],
                AllOf(HasSubstr("rank 0: layout 2, number 2 on this group"),
                      HasSubstr("rank 1: layout 2, number 1 on this group")));
  }
}

void throw_at(const std::string& step, const std::string& when, const std::exception_ptr& error) {
  if (step == when) std::rethrow_exception(error);
}

template <class Error>
std::exception_ptr make(const std::string& text) {
  return std::make_exception_ptr(Error(text));
}

TEST(Pipeline, first_failure_names_rank_bucket_stage_cause_and_remedy) {
  struct Case {
    std::string step;
    std::exception_ptr error;
    std::string expected;
  };
  for (const Case& c : {
           Case{"layout", make<InvalidArgument>("odd"), "stage plan: odd"},
           Case{"prepare", make<MalformedMessage>("bad"), "stage middle: bad (run the same build"},
           Case{"post", make<TransportError>("gone"), "stage middle: gone (a rank died"},
           Case{"finish", std::make_exception_ptr(std::bad_alloc()), "stage middle: out of memory"},
       }) {
    ThreadGroup group(1);
    Pipeline pipeline(group.transport(0));
    Diary diary;
    start(pipeline, diary, {.name = "bucket 0"});
    start(pipeline, diary, {.name = "bucket 1", .act = [&](const std::string& step) {
                              throw_at(step, c.step, c.error);
                            }});
    while (pipeline.in_flight() > 0) pipeline.finish_oldest();
    start(pipeline, diary, {.name = "bucket 2"});
    std::string first, later;
    for (const std::string& failure : diary.failures)
      (failure.find("earlier failure") == std::string::npos ? first : later) = failure;
    EXPECT_THAT(first, HasSubstr("zensync: rank 0, bucket 1, " + c.expected));
    EXPECT_THAT(later, HasSubstr("zensync: rank 0, bucket 2: not synchronised after an earlier"));
    EXPECT_THAT(later, HasSubstr("rank 0, bucket 1, " + c.expected));
  }
}

TEST(Pipeline, failure_ends_every_bucket_in_flight) {
  ThreadGroup group(1);
  Pipeline pipeline(group.transport(0));
  Diary diary;
  start(pipeline, diary, {.name = "bucket 0", .act = [](const std::string& step) {
                            if (step == "finish") throw TransportError("gone");
                          }});
  start(pipeline, diary, {.name = "bucket 1"});
  pipeline.finish_oldest();
  EXPECT_EQ(pipeline.in_flight(), 0u);
  ASSERT_THAT(diary.failures, SizeIs(2));
  EXPECT_THAT(diary.failures[0], HasSubstr("bucket 0, stage middle: gone"));
  EXPECT_THAT(diary.failures[1], HasSubstr("bucket 1: not synchronised"));
}

TEST(Pipeline, failure_wakes_the_peers) {
  ThreadGroup group(3, {.timeout = std::chrono::hours(1)});
  const auto diaries = run(group, 2, [&](int rank, int number) {
    TaskSpec spec{.name = "bucket " + std::to_string(number)};
    spec.act = [&group, rank, number](const std::string& step) {
      if (number != 1 || step != "finish") return;
      if (rank == 2) throw std::bad_alloc();
      Transport& transport = group.transport(rank);
      const std::vector<Expected> from{{2, 100}};
      const Ticket ticket = transport.expect({.layout = 1, .sequence = 1}, from);
      transport.send(ticket, {});
      transport.wait(ticket);  // rank 2 never sends
    };
    return spec;
  });
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_THAT(diaries[rank].failures, SizeIs(1)) << "rank " << rank;
    EXPECT_THAT(diaries[rank].failures[0], HasSubstr("bucket 1, stage middle"));
  }
}

}  // namespace
}  // namespace zen
