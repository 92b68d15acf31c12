#include "torch/stage_recorder.h"

namespace zen {

namespace {

const char* range_name(Stage stage) {
  switch (stage) {
    case Stage::select:
      return "zensync::select";
    case Stage::encode:
      return "zensync::encode";
    case Stage::push:
      return "zensync::push";
    case Stage::reduce:
      return "zensync::reduce";
    case Stage::pull:
      return "zensync::pull";
    case Stage::decode:
      return "zensync::decode";
  }
  return "zensync";
}

}  // namespace

void StageRecorder::enter(Stage stage) {
  latest_ = name_of(stage);
  guard_.emplace(callers_state_);
  range_.emplace(at::RecordScope::USER_SCOPE);
  range_->before(range_name(stage));
  entered_ = Clock::now();
}

void StageRecorder::leave(Stage stage) {
  seconds_[static_cast<int>(stage)] +=
      std::chrono::duration<double>(Clock::now() - entered_).count();
  range_.reset();
  guard_.reset();
}

}  // namespace zen
