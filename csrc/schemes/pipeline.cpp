#include "schemes/pipeline.h"

#include <new>
#include <utility>

#include "core/error.h"
#include "schemes/fingerprint.h"

namespace zen {

namespace {

// Adds to `sum` what `transport` moved during the scope.
class TrafficScope {
 public:
  TrafficScope(const Transport& transport, Traffic& sum)
      : transport_(transport), before_(transport.traffic()), sum_(sum) {}
  ~TrafficScope() {
    const Traffic after = transport_.traffic();
    sum_.bytes_out += after.bytes_out - before_.bytes_out;
    sum_.bytes_in += after.bytes_in - before_.bytes_in;
  }
  TrafficScope(const TrafficScope&) = delete;
  TrafficScope& operator=(const TrafficScope&) = delete;

 private:
  const Transport& transport_;
  Traffic before_;
  Traffic& sum_;
};

// What the reader can do about it.
std::string with_remedy(const std::exception& error) {
  std::string cause = error.what();
  if (dynamic_cast<const Disagreement*>(&error) != nullptr)
    return cause + " (use the same model, tensors and options on every rank)";
  if (dynamic_cast<const TransportError*>(&error) != nullptr)
    return cause +
           " (a rank died, failed or was later than the group's timeout: look for the first error "
           "in the output of all ranks; this group cannot be used again)";
  if (dynamic_cast<const MalformedMessage*>(&error) != nullptr)
    return cause + " (run the same build of zensync on every rank)";
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return "out of memory (use smaller buckets, or fewer in flight)";
  return cause;
}

}  // namespace

void Pipeline::start(std::unique_ptr<Task> owned) {
  Task& task = *owned;
  if (failed_already(task)) return;
  bool alone = task.consults();
  if (alone) {
    while (!flight_.empty()) finish_oldest();
    if (failed_already(task)) return;
    alone = task.consults();  // what was in flight may have been all that it waited for
    if (alone && !consulted(task)) return;
  }
  const uint32_t sequence = sequence_++;
  if (!agreed(task, sequence)) return;
  Running running{std::move(owned), nullptr, {}, false};
  if (!attempt(task, "plan", [&] { running.exchange = task.exchange(sequence); })) return;
  const bool started = attempt(task, "", [&] {
    running.exchange->prepare();
    if (!ordered() || flight_.empty()) post(running);
  });
  if (!started) return;
  flight_.push_back(std::move(running));
  if (alone) finish_oldest();
}

void Pipeline::finish_oldest() {
  Task& task = *flight_.front().task;
  const bool finished = attempt(task, "", [&] {
    const TrafficScope scope(transport_, flight_.front().traffic);
    flight_.front().exchange->finish();
  });
  if (!finished) return;
  const Running oldest = std::move(flight_.front());
  flight_.pop_front();
  if (watch_ != nullptr) watch_->finished();
  task.done(oldest.exchange->report(), oldest.traffic);
  if (flight_.empty() || flight_.front().posted) return;
  attempt(*flight_.front().task, "", [&] { post(flight_.front()); });
}

// False, like those below, if the bucket cannot be synchronised; it has been told.
bool Pipeline::consulted(Task& task) {
  const uint32_t sequence = sequence_++;
  const auto consult = [&] {
    const Layout subject = task.subject();
    if (watch_ != nullptr)
      watch_->started({sequence, task.where(), subject.fingerprint, subject.description});
    task.consult(sequence);
    if (watch_ != nullptr) watch_->finished();
  };
  return attempt(task, "profile", consult);
}

bool Pipeline::agreed(Task& task, uint32_t sequence) {
  Layout layout;
  if (!attempt(task, "plan", [&] { layout = task.layout(); })) return false;
  const bool known = !layout.always_agree && known_.count(layout.fingerprint) > 0;
  if (watch_ != nullptr)
    watch_->started({sequence, task.where(), layout.fingerprint,
                     layout.description + (known ? "" : ", to be agreed on")});
  if (known) return true;
  while (!flight_.empty()) finish_oldest();
  if (failed_already(task)) return false;
  // Ranks that are out of step do not mean the same either, however alike the two buckets are.
  Fingerprint fingerprint;
  fingerprint.add(layout.fingerprint);
  fingerprint.add(sequence);
  fingerprint.add(layout.description);
  const std::string description =
      layout.description + ", number " + std::to_string(sequence) + " on this group";
  // Two ranks of different nodes are compared by way of a third.
  const bool agreed = attempt(task, "agree", [&] {
    transport_.agree(fingerprint.result(), description);
    if (node_ != nullptr) node_->agree(fingerprint.result(), description);
  });
  if (!agreed) return false;
  if (!layout.always_agree) known_.insert(layout.fingerprint);
  return true;
}

bool Pipeline::failed_already(Task& task) const {
  if (failure_.empty()) return false;
  task.failed(not_done(task));
  return true;
}

bool Pipeline::ordered() const {
  return transport_.traits().ordered || (node_ != nullptr && node_->traits().ordered);
}

void Pipeline::fail() noexcept {
  transport_.fail();
  if (node_ != nullptr) node_->fail();
}

void Pipeline::post(Running& running) {
  const TrafficScope scope(transport_, running.traffic);
  running.posted = true;
  running.exchange->post();
}

// Runs a step of the task's exchange. On an exception all buckets have been told, and it is false.
bool Pipeline::attempt(Task& task, std::string_view stage, const std::function<void()>& step) {
  try {
    step();
    return true;
  } catch (const std::exception& error) {
    die(task, stage.empty() ? task.stage() : stage, error);
    return false;
  }
}

void Pipeline::die(Task& culprit, std::string_view stage, const std::exception& error) {
  fail();
  failure_ = "rank " + std::to_string(rank_) + ", " + culprit.name() + ", stage " +
             std::string(stage) + ": " + cause_of(error);
  culprit.failed("zensync: " + failure_);
  for (const Running& running : flight_)
    if (running.task.get() != &culprit) running.task->failed(not_done(*running.task));
  flight_.clear();
}

// What the transport says is often only that a peer has gone; the watch may know why.
std::string Pipeline::cause_of(const std::exception& error) const {
  const bool is_plain = dynamic_cast<const TransportError*>(&error) != nullptr &&
                        dynamic_cast<const Disagreement*>(&error) == nullptr;
  if (watch_ == nullptr || !is_plain) return with_remedy(error);
  const Explanation known = watch_->explain();
  if (known.disagreement) return with_remedy(Disagreement(known.text));
  if (known.text.empty()) return with_remedy(error);
  return with_remedy(TransportError(std::string(error.what()) + "; " + known.text));
}

std::string Pipeline::not_done(const Task& task) const {
  return "zensync: rank " + std::to_string(rank_) + ", " + task.name() +
         ": not synchronised after an earlier failure: " + failure_;
}

}  // namespace zen
