// Ranks as threads, each with a device and a gradient, running whole exchanges.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/cpu_device.h"
#include "inputs.h"
#include "ranks.h"
#include "schemes/exchange.h"
#include "schemes/thread_transport.h"

namespace zen::scheme_test {

// One bucket.
struct Job {
  std::string scheme;
  Inputs inputs;
  DType dtype = DType::f32;
  float divisor = 1;
  int chunks = 1;
  uint32_t seed = 1;
  bool pack_values = false;
  std::optional<DType> wire_dtype = {};
};

struct Answer {
  std::vector<Bytes> by_rank;
  std::vector<Report> reports;
};

// Fails the test if stages nest or end in the wrong order.
class StrictObserver final : public Observer {
 public:
  void enter(Stage stage) override {
    EXPECT_FALSE(open_) << name_of(stage) << " inside " << name_of(stage_);
    open_ = true;
    stage_ = stage;
  }
  void leave(Stage stage) override {
    EXPECT_TRUE(open_ && stage == stage_);
    open_ = false;
  }
  const char* latest() const { return name_of(stage_); }

 private:
  bool open_ = false;
  Stage stage_ = Stage::select;
};

inline uint64_t fingerprint_of(const Job& job) {
  return layout_fingerprint(job.scheme, job.dtype, job.inputs[0].size(),
                            static_cast<int>(job.inputs.size()), job.seed, job.chunks, job.divisor,
                            job.wire_dtype);
}

inline std::shared_ptr<const Placement> placement_of(const Job& job) {
  const Scheme& scheme = find_scheme(job.scheme);
  if (!scheme.has_placement) return nullptr;
  const int ranks = static_cast<int>(job.inputs.size());
  return Placement::make(scheme.placement, job.inputs[0].size(),
                         scheme.placement == PlacementKind::whole ? 1 : ranks, job.seed);
}

// `gradient` holds this rank's input, and later its answer.
inline std::unique_ptr<Exchange> make_exchange(const Job& job,
                                               const std::shared_ptr<const Placement>& placement,
                                               uint32_t sequence, Device& device,
                                               Transport& transport, Observer& observer,
                                               const Gradient& gradient) {
  const Context context{.device = device,
                        .transport = transport,
                        .observer = observer,
                        .gradient = gradient,
                        .placement = placement,
                        .layout = static_cast<uint32_t>(fingerprint_of(job)),
                        .sequence = sequence,
                        .divisor = job.divisor,
                        .chunks = job.chunks,
                        .pack_values = job.pack_values,
                        .wire_dtype = job.wire_dtype};
  return find_scheme(job.scheme).make(context);
}

// `memory` becomes this rank's input, and later its answer.
inline std::unique_ptr<Exchange> make_exchange(const Job& job,
                                               const std::shared_ptr<const Placement>& placement,
                                               uint32_t sequence, Device& device,
                                               Transport& transport, Observer& observer,
                                               Bytes& memory) {
  memory = pack(job.inputs[transport.rank()], job.dtype);
  return make_exchange(
      job, placement, sequence, device, transport, observer,
      Gradient{{memory.data(), memory.size(), nullptr}, job.dtype, job.inputs[0].size()});
}

// Runs the jobs as the engine does: each is prepared and posted before the one before it finishes.
inline Outcome run_jobs(ThreadGroup& group, const std::vector<Job>& jobs,
                        std::vector<Answer>& answers) {
  answers.assign(jobs.size(),
                 {std::vector<Bytes>(group.size()), std::vector<Report>(group.size())});
  std::vector<std::shared_ptr<const Placement>> placements;
  for (const Job& job : jobs) placements.push_back(placement_of(job));
  return run_ranks(group, [&](int rank) {
    CpuDevice device;
    StrictObserver observer;
    std::vector<std::unique_ptr<Exchange>> running;
    for (size_t j = 0; j <= jobs.size(); ++j) {
      if (j < jobs.size()) {
        running.push_back(make_exchange(jobs[j], placements[j], static_cast<uint32_t>(j), device,
                                        group.transport(rank), observer, answers[j].by_rank[rank]));
        running[j]->prepare();
        running[j]->post();
      }
      if (j > 0) {
        running[j - 1]->finish();
        answers[j - 1].reports[rank] = running[j - 1]->report();
      }
    }
  });
}

inline Answer run_job(ThreadGroup& group, const Job& job) {
  std::vector<Answer> answers;
  run_jobs(group, {job}, answers).rethrow();
  return answers[0];
}

}  // namespace zen::scheme_test
