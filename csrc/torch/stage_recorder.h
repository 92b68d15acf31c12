// Times the stages of one bucket and shows them to torch's profiler as zensync::select and so on.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <ATen/record_function.h>

#include <chrono>
#include <optional>
#include <string_view>

#include "schemes/exchange.h"
#include "torch/statistics.h"

namespace zen {

class StageRecorder final : public Observer {
 public:
  // The profiler belongs to the thread that made the recorder; stages run on another one.
  StageRecorder() = default;

  void enter(Stage stage) override;
  void leave(Stage stage) override;

  std::string_view latest() const { return latest_; }
  const StageSeconds& seconds() const { return seconds_; }

 private:
  using Clock = std::chrono::steady_clock;

  at::ThreadLocalState callers_state_;
  std::optional<at::ThreadLocalStateGuard> guard_;
  std::optional<at::RecordFunction> range_;
  std::string_view latest_ = "start";
  Clock::time_point entered_;
  StageSeconds seconds_{};
};

}  // namespace zen
