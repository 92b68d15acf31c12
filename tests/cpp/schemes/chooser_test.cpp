// The chooser over ranks that are threads, with a clock that says what each candidate takes.
#include "schemes/chooser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "pipelines.h"

namespace zen {
namespace {

using namespace scheme_test;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;

// What a turn of a rank takes, in seconds.
using Cost = std::function<double(int rank, uint64_t turn, const Choosable& choice)>;

struct Setting {
  int ranks = 3;
  ChooserOptions options = {.profile_iterations = 16};  // enough to try everything
  Cost cost = {};
  std::function<Inputs(uint64_t turn)> inputs = {};
  uint64_t turns = 20;
  uint64_t numel = 20'000;
  bool overlaps = false;  // a turn starts before the one before has ended
  bool looks = true;      // at the gradient; otherwise it goes by what the exchanges counted
};

// What one rank did.
struct Course {
  std::vector<std::string> choices;  // by turn
  std::vector<bool> due;             // by turn: whether the ranks consulted
  std::vector<BucketReport> reports;
  std::vector<BucketEnd> ends;
};

class AutoTask final : public Task {
 public:
  AutoTask(const Setting& setting, const Inputs& inputs, uint64_t turn, Chooser& chooser,
           Device& device, Transport& transport, double& now, Course& course)
      : setting_(setting),
        job_{.scheme = "", .inputs = inputs, .divisor = static_cast<float>(inputs.size())},
        turn_(turn),
        chooser_(chooser),
        device_(device),
        transport_(transport),
        now_(now),
        course_(course) {}

  std::string name() const override { return "turn " + std::to_string(turn_); }
  std::string_view stage() const override { return observer_.latest(); }
  bool consults() override { return chooser_.is_due(key()); }
  void consult(uint32_t sequence) override {
    course_.due[turn_] = true;
    scheme_test::Bytes bytes = pack(job_.inputs[transport_.rank()], job_.dtype);
    const Gradient gradient{{bytes.data(), bytes.size(), nullptr}, job_.dtype, key().numel};
    chooser_.consult(key(), sequence, setting_.looks ? &gradient : nullptr, 1);
  }
  Layout layout() override {
    const Choosable choice = chooser_.choice(key());
    course_.choices.push_back(choice.name());
    job_.scheme = choice.scheme->name;
    job_.pack_values = choice.pack_values;
    return {fingerprint_of(job_), job_.scheme, false};
  }
  std::unique_ptr<Exchange> exchange(uint32_t sequence) override {
    placement_ = placement_of(job_);
    auto exchange = make_exchange(job_, placement_, sequence, device_, transport_, observer_,
                                  course_.ends.at(turn_).gradient);
    chooser_.begin(key());
    return exchange;
  }
  void done(const Report& report, const Traffic&) noexcept override {
    now_ += setting_.cost(transport_.rank(), turn_, chooser_.choice(key()));
    chooser_.end(key(), report, {});
    course_.ends[turn_].told = true;
  }
  void failed(const std::string& message) noexcept override {
    course_.ends[turn_].error = message;
    course_.ends[turn_].told = true;
  }

 private:
  BucketKey key() const { return {0, job_.dtype, job_.inputs[0].size()}; }

  const Setting& setting_;
  Job job_;
  uint64_t turn_;
  Chooser& chooser_;
  Device& device_;
  Transport& transport_;
  double& now_;
  Course& course_;
  StrictObserver observer_;
  std::shared_ptr<const Placement> placement_;
};

std::vector<Course> run(ThreadGroup& group, const Setting& setting) {
  std::vector<Course> courses(group.size());
  std::vector<Inputs> inputs;
  for (uint64_t turn = 0; turn < setting.turns; ++turn) inputs.push_back(setting.inputs(turn));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < group.size(); ++rank)
    threads.emplace_back([&, rank] {
      CpuDevice device;
      double now = rank;  // clocks need not agree
      Transport& transport = group.transport(rank);
      Chooser chooser(
          setting.options, transport, [&](size_t bytes) { return device.allocate(bytes); },
          [&] { return now; });
      Pipeline pipeline(transport);
      Course& course = courses[rank];
      course.ends.resize(setting.turns);
      course.due.resize(setting.turns);
      for (uint64_t turn = 0; turn < setting.turns; ++turn) {
        pipeline.start(std::make_unique<AutoTask>(setting, inputs[turn], turn, chooser, device,
                                                  transport, now, course));
        if (pipeline.in_flight() > (setting.overlaps ? 1u : 0u)) pipeline.finish_oldest();
      }
      while (pipeline.in_flight() > 0) pipeline.finish_oldest();
      course.reports = chooser.reports();
    });
  for (std::thread& thread : threads) thread.join();
  return courses;
}

// All ranks must have done the same, and have the same bits, which are right.
std::vector<Course> run_well(const Setting& setting) {
  ThreadGroup group(setting.ranks);
  std::vector<Course> courses = run(group, setting);
  for (const Course& course : courses) {
    EXPECT_EQ(course.choices, courses[0].choices);
    for (uint64_t turn = 0; turn < setting.turns; ++turn) {
      EXPECT_EQ(course.ends[turn].error, "");
      EXPECT_EQ(course.ends[turn].gradient, courses[0].ends[turn].gradient) << "turn " << turn;
      const Values result = unpack(course.ends[turn].gradient, DType::f32);
      EXPECT_EQ(compare_with_oracle(setting.inputs(turn), result, DType::f32,
                                    static_cast<float>(setting.ranks), false),
                "");
    }
  }
  return courses;
}

Cost takes(const std::map<std::string, double>& seconds, double otherwise) {
  return [=](int, uint64_t, const Choosable& choice) {
    const auto found = seconds.find(choice.name());
    return found == seconds.end() ? otherwise : found->second;
  };
}

std::function<Inputs(uint64_t)> always(scheme_test::Pattern pattern, int ranks) {
  return [inputs = make_inputs(pattern, ranks, 20'000, DType::f32, 5)](uint64_t) { return inputs; };
}

TEST(Chooser, keeps_to_what_was_the_fastest_of_its_trials) {
  for (const char* fastest : {"balanced_parallelism", "hierarchical", "allreduce"}) {
    Setting setting{.cost = takes({{fastest, 0.01}}, 0.02)};
    setting.inputs = always(scheme_test::Pattern::scattered, setting.ranks);
    for (const bool overlaps : {false, true}) {
      setting.overlaps = overlaps;
      const Course course = run_well(setting)[0];
      EXPECT_EQ(course.choices.back(), fastest);
      EXPECT_EQ(course.reports[0].profiles, 1u);
      EXPECT_LE(std::ranges::count(course.due, true), setting.options.profile_iterations + 1);
      EXPECT_FALSE(course.due.back());
    }
  }
}

TEST(Chooser, tries_no_more_than_it_may_nor_what_cannot_win) {
  Setting setting{.cost = takes({{"balanced_parallelism", 1e-5}}, 0.02)};
  setting.inputs = always(scheme_test::Pattern::scattered, setting.ranks);
  EXPECT_EQ(run_well(setting)[0].choices.size(), setting.turns);
  EXPECT_THAT(run_well(setting)[0].choices, Each("balanced_parallelism"));
  setting.cost = takes({}, 0.02);
  setting.options.profile_iterations = 2;
  EXPECT_EQ(std::ranges::count(run_well(setting)[0].due, true), 3);
}

TEST(Chooser, the_slowest_rank_of_each_trial_counts) {
  // Rank 1 alone finds the otherwise fastest scheme slow.
  Setting setting{.cost = [](int rank, uint64_t, const Choosable& choice) {
    if (choice.name() == "hierarchical") return rank == 1 ? 0.1 : 0.01;
    return choice.name() == "balanced_parallelism" ? 0.02 : 0.05;
  }};
  setting.inputs = always(scheme_test::Pattern::scattered, setting.ranks);
  EXPECT_EQ(run_well(setting)[0].choices.back(), "balanced_parallelism");
}

TEST(Chooser, deterministic_asks_no_clock_and_decides_once) {
  std::set<std::string> choices;
  for (const double seconds : {1e-6, 1.0}) {
    Setting setting{.cost = takes({{"allreduce", seconds}, {"hierarchical", seconds / 100}}, 0.1)};
    setting.options.deterministic = true;
    setting.inputs = always(scheme_test::Pattern::scattered, setting.ranks);
    const Course course = run_well(setting)[0];
    EXPECT_EQ(std::ranges::count(course.due, true), 1);
    EXPECT_THAT(course.choices, Each(course.choices[0]));
    choices.insert(course.choices[0]);
  }
  EXPECT_EQ(choices.size(), 1u);
}

TEST(Chooser, profiles_again_when_the_density_moves_by_half) {
  constexpr uint64_t kChange = 20;
  Setting setting{.ranks = 2};
  setting.turns = 60;
  setting.cost = [](int, uint64_t turn, const Choosable& choice) {
    return (choice.name() == "hierarchical") == (turn < kChange) ? 0.01 : 0.02;
  };
  const Inputs before = make_inputs(scheme_test::Pattern::scattered, 2, 20'000, DType::f32, 5);
  const Inputs after = make_inputs(scheme_test::Pattern::half, 2, 20'000, DType::f32, 5);
  setting.inputs = [=](uint64_t turn) { return turn < kChange ? before : after; };
  const Course course = run_well(setting)[0];
  EXPECT_EQ(course.choices[kChange - 1], "hierarchical");
  EXPECT_FALSE(course.due[kChange - 1]);
  EXPECT_NE(course.choices.back(), "hierarchical");
  EXPECT_THAT(course.reports[0].reason, HasSubstr("moved by half"));
  EXPECT_EQ(course.reports[0].profiles, 2u);
}

TEST(Chooser, looks_again_every_so_often_and_changes_only_for_much) {
  // From turn 17 on the chosen scheme is slower than the other: by little, or by much.
  for (const double later : {0.0101, 0.1}) {
    Setting setting;
    setting.options.reprofile_every = 15;
    setting.turns = 80;
    setting.cost = [=](int, uint64_t turn, const Choosable& choice) {
      if (choice.name() == "allreduce") return 0.01;
      if (choice.name() == "balanced_parallelism") return turn < 17 ? 0.0095 : later;
      return 0.5;
    };
    setting.inputs = always(scheme_test::Pattern::scattered, setting.ranks);
    const Course course = run_well(setting)[0];
    EXPECT_EQ(course.choices.back(), later > 0.05 ? "allreduce" : "balanced_parallelism");
    EXPECT_GT(course.reports[0].profiles, 2u);
    EXPECT_LT(std::ranges::count(course.due, true), 30);
  }
}

TEST(Chooser, without_a_look_it_goes_by_what_the_exchanges_counted) {
  Setting setting{.cost = takes({{"hierarchical", 0.01}}, 0.02), .looks = false};
  setting.options.wishes.compressed = true;
  setting.inputs = always(scheme_test::Pattern::scattered, setting.ranks);
  const Course course = run_well(setting)[0];
  EXPECT_EQ(course.choices.front(), "balanced_parallelism");
  EXPECT_EQ(course.choices.back(), "hierarchical");
  EXPECT_THAT(course.choices, ::testing::Not(Contains("allreduce")));
  EXPECT_NEAR(course.reports[0].density, 0.05, 0.01);
}

TEST(Chooser, wishes_narrow_the_candidates) {
  const auto names = [](DType dtype, const Wishes& wishes) {
    std::vector<std::string> result;
    for (const Choosable& one : choosable(dtype, wishes)) result.push_back(one.name());
    return result;
  };
  const auto packed = HasSubstr("packed");
  EXPECT_THAT(names(DType::f32, {.pack_values = false}), Each(::testing::Not(packed)));
  EXPECT_THAT(names(DType::f32, {.pack_values = true}),
              Each(::testing::AnyOf(packed, ::testing::StrEq("allreduce"))));
  EXPECT_THAT(
      names(DType::f32, {.wire_dtype = DType::bf16}),
      ::testing::ElementsAre("balanced_parallelism", "balanced_parallelism, packed", "allreduce"));
  EXPECT_THAT(names(DType::bf16, {.wire_dtype = DType::bf16}), Contains("hierarchical"));
  EXPECT_THAT(names(DType::f32, {.compressed = true}), ::testing::Not(Contains("allreduce")));
}

TEST(Chooser, ranks_with_different_options_are_told) {
  ThreadGroup group(2);
  std::vector<std::string> errors(2);
  const Outcome outcome = run_ranks(group, [&](int rank) {
    CpuDevice device;
    Chooser chooser(
        {.profile_iterations = 3 + rank}, group.transport(rank),
        [&](size_t bytes) { return device.allocate(bytes); }, [] { return 0.0; });
    std::vector<float> values(100);
    const Gradient gradient{
        {reinterpret_cast<std::byte*>(values.data()), 400, nullptr}, DType::f32, 100};
    chooser.consult({0, DType::f32, 100}, 0, &gradient, 1);
  });
  EXPECT_THAT(outcome.errors,
              Each(AllOf(HasSubstr("profile_iterations 3"), HasSubstr("profile_iterations 4"))));
}

TEST(Chooser, a_failure_at_any_call_of_a_profile_ends_on_every_rank) {
  Setting setting{.ranks = 2, .cost = takes({}, 0.001)};
  setting.turns = 6;
  setting.inputs = always(scheme_test::Pattern::scattered, setting.ranks);
  ThreadGroup sound(setting.ranks);
  run(sound, setting);
  const uint64_t calls = sound.calls(1);
  for (uint64_t call = 0; call < calls; ++call) {
    ThreadGroup group(setting.ranks);
    group.inject_fault(1, call);
    const std::vector<Course> courses = run(group, setting);
    EXPECT_NE(courses[1].ends.back().error, "") << "call " << call;
    for (const Course& course : courses) {
      for (const BucketEnd& end : course.ends) EXPECT_TRUE(end.told) << "call " << call;
    }
  }
}

}  // namespace
}  // namespace zen
