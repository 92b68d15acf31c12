// Ranks as threads, each with a pipeline of buckets: how a scheme runs in the engine.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cluster.h"
#include "schemes/pipeline.h"

namespace zen::scheme_test {

// Where one bucket of one rank ends.
struct BucketEnd {
  Bytes gradient;
  std::string error;  // empty if it was synchronised
  bool told = false;
};

class SchemeTask final : public Task {
 public:
  SchemeTask(const Job& job, std::shared_ptr<const Placement> placement, size_t number,
             Device& device, Transport& transport, BucketEnd& end)
      : job_(job),
        placement_(std::move(placement)),
        number_(number),
        device_(device),
        transport_(transport),
        end_(end) {}

  std::string name() const override { return "bucket " + std::to_string(number_); }
  std::string_view stage() const override { return observer_.latest(); }
  Layout layout() override { return {fingerprint_of(job_), job_.scheme, false}; }
  std::unique_ptr<Exchange> exchange(uint32_t sequence) override {
    return make_exchange(job_, placement_, sequence, device_, transport_, observer_, end_.gradient);
  }
  void done(const Report&, const Traffic&) noexcept override { end(""); }
  void failed(const std::string& message) noexcept override { end(message); }

 private:
  void end(const std::string& error) {
    EXPECT_FALSE(end_.told) << name() << " ends twice";
    end_.told = true;
    end_.error = error;
  }

  const Job& job_;
  std::shared_ptr<const Placement> placement_;
  size_t number_;
  Device& device_;
  Transport& transport_;
  BucketEnd& end_;
  StrictObserver observer_;
};

// By rank and bucket. With two buckets in flight, as in the engine.
inline std::vector<std::vector<BucketEnd>> run_pipelines(
    int ranks, const std::vector<Job>& jobs, const std::function<Transport&(int)>& transport_of) {
  std::vector<std::vector<BucketEnd>> ends(ranks, std::vector<BucketEnd>(jobs.size()));
  std::vector<std::shared_ptr<const Placement>> placements;
  for (const Job& job : jobs) placements.push_back(placement_of(job));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      CpuDevice device;
      Transport& transport = transport_of(rank);
      Pipeline pipeline(transport);
      for (size_t j = 0; j < jobs.size(); ++j) {
        pipeline.start(std::make_unique<SchemeTask>(jobs[j], placements[j], j, device, transport,
                                                    ends[rank][j]));
        if (pipeline.in_flight() == 2) pipeline.finish_oldest();
      }
      while (pipeline.in_flight() > 0) pipeline.finish_oldest();
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& buckets : ends)
    for (const BucketEnd& end : buckets) EXPECT_TRUE(end.told) << "a bucket never ends";
  return ends;
}

}  // namespace zen::scheme_test
