#include "schemes/watch.h"

#include <charconv>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace zen {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kVerdict = "verdict";
constexpr uint32_t kLayoutKeys = 4;  // more than buckets in flight, so that a key's reuse is safe
constexpr size_t kNamedRanks = 8;    // in one message

// On the board: numbers, each followed by a bar, then the text.
//   layout/K  sequence, fingerprint, rank of who wrote it first | description
//   at/R      buckets that rank R has started | where it is; empty while it moves
template <class... Numbers>
std::string entry(const std::string& text, Numbers... numbers) {
  return ((std::to_string(numbers) + "|") + ...) + text;
}

// The number at the front of `text`, which loses it.
uint64_t take_number(std::string& text) {
  uint64_t number = 0;
  const char* end = std::from_chars(text.data(), text.data() + text.size(), number).ptr;
  text.erase(0, static_cast<size_t>(end - text.data()) + 1);
  return number;
}

template <class Number>
std::string rank_name(Number rank) {
  return "rank " + std::to_string(rank);
}

void append(std::string& list, const std::string& item) {
  list += (list.empty() ? "" : ", ") + item;
}

}  // namespace

// What the thread and its owner share: it outlives a thread that a silent board keeps.
class Watch::Shared {
 public:
  Shared(std::unique_ptr<Board> board, int rank, int ranks, std::function<void()> fail,
         const Timing& timing)
      : board_(std::move(board)),
        rank_(rank),
        ranks_(ranks),
        fail_(std::move(fail)),
        timing_(timing) {}

  void start(const std::shared_ptr<Shared>& self) {
    thread_ = std::thread([self] { self->run(); });
  }

  void stop() {
    std::unique_lock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
    // Where the thread does not talk to the board it ends by itself.
    bool silent = false;
    while (!ended_ && !silent) {
      changed_.wait(lock, [&] { return ended_ || talking_; });
      silent = !changed_.wait_for(lock, timing_.answer, [&] { return ended_ || !talking_; });
    }
    const bool ended = ended_;
    lock.unlock();
    if (ended)
      thread_.join();
    else
      thread_.detach();
  }

  void started(Step step) {
    const std::lock_guard lock(mutex_);
    steps_.push_back(std::move(step));
    ++started_;
    ++moves_;
  }

  void finished() {
    const std::lock_guard lock(mutex_);
    last_ = std::move(steps_.front().where);
    steps_.pop_front();
    ++moves_;
  }

  Explanation explain() {
    std::unique_lock lock(mutex_);
    if (verdict_.empty()) {
      asked_ = true;
      changed_.notify_all();
      changed_.wait_for(lock, timing_.answer, [&] { return !asked_ || ended_; });
    }
    return verdict_.empty() ? Explanation{false, lateness_} : Explanation{true, verdict_};
  }

 private:
  struct Progress {
    std::deque<Step> steps;
    std::string last;
    uint64_t started, moves;
  };

  enum class Wake { look, answer, end };

  void run() {
    try {
      Wake wake = Wake::look;
      while (wake == Wake::look && look()) wake = wait_for(timing_.tick);
      if (wake == Wake::answer) answer();
    } catch (const std::exception&) {
      // The board is gone, presumably with the rank that hosts it: nothing can be told any more.
    }
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  Wake wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, time, [&] { return stopped_ || asked_; });
    return stopped_ ? Wake::end : asked_ ? Wake::answer : Wake::look;
  }

  Progress progress() {
    const std::lock_guard lock(mutex_);
    return {steps_, last_, started_, moves_};
  }

  // A call of the board, during which the destructor need not wait for ever.
  template <class Call>
  auto ask(Call&& call) {
    const auto set = [this](bool talking) {
      const std::lock_guard lock(mutex_);
      talking_ = talking;
      changed_.notify_all();
    };
    set(true);
    try {
      auto result = call(*board_);
      set(false);
      return result;
    } catch (...) {
      set(false);
      throw;
    }
  }

  // False once the group has failed.
  bool look() {
    const Progress now = progress();
    if (now.moves != seen_) {
      seen_ = now.moves;
      since_ = Clock::now();
      if (std::exchange(told_, false)) tell(entry("", now.started));
      return true;
    }
    if (Clock::now() - since_ < timing_.patience) return true;
    if (!std::exchange(told_, true)) {
      tell(entry(place(now), now.started));
      for (const Step& step : now.steps)
        if (!same_as_others(step)) return false;
    }
    if (now.steps.empty()) return true;  // waits for nobody
    const auto verdict = read(kVerdict);
    if (verdict) condemn(*verdict);
    return !verdict;
  }

  static std::string place(const Progress& now) {
    if (!now.steps.empty()) return "it is in " + now.steps.front().where;
    return now.last.empty() ? "it has done nothing yet" : "it has been idle since " + now.last;
  }

  std::optional<std::string> read(const std::string& key) {
    return ask([&](Board& board) { return board.read(key); });
  }

  std::string replace(const std::string& key, const std::string& expected,
                      const std::string& text) {
    return ask([&](Board& board) { return board.replace(key, expected, text); });
  }

  void tell(const std::string& text) {
    ask([&](Board& board) {
      board.write("at/" + std::to_string(rank_), text);
      return true;
    });
  }

  // The first rank that waits at a bucket writes what it means, everybody else compares.
  bool same_as_others(const Step& step) {
    const std::string key = "layout/" + std::to_string(step.sequence % kLayoutKeys);
    const std::string mine = entry(step.description, step.sequence, step.fingerprint, rank_);
    std::string older;
    for (;;) {
      const std::string found = replace(key, older, mine);
      std::string there = found;
      const uint64_t sequence = take_number(there);
      const uint64_t fingerprint = take_number(there);
      const uint64_t rank = take_number(there);
      if (found == mine || sequence > step.sequence) return true;
      if (sequence == step.sequence) {
        if (fingerprint == step.fingerprint && there == step.description) return true;
        disagree(rank_name(rank) + ": " + there + "; " + rank_name(rank_) + ": " +
                 step.description);
        return false;
      }
      older = found;
    }
  }

  // The others get the time to read it: a rank that fails may take the board with it.
  void disagree(const std::string& views) {
    const std::string first = replace(kVerdict, "", "the ranks do not mean the same: " + views);
    if (wait_for(2 * timing_.tick) != Wake::end) condemn(first);
  }

  void condemn(const std::string& verdict) {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_ || !verdict_.empty()) return;
      verdict_ = verdict;
    }
    fail_();
  }

  void answer() {
    const auto verdict = read(kVerdict);
    const std::string late = verdict || !told_ ? "" : who_is_late(progress());
    const std::lock_guard lock(mutex_);
    if (verdict) verdict_ = *verdict;
    lateness_ = late;
    asked_ = false;
    changed_.notify_all();
  }

  std::string who_is_late(const Progress& now) {
    if (now.steps.empty()) return "";
    const Step& step = now.steps.front();
    std::string late, silent;
    size_t named = 0;
    for (int peer = 0; peer < ranks_ && named < kNamedRanks; ++peer) {
      if (peer == rank_) continue;
      auto place = read("at/" + std::to_string(peer));
      const uint64_t started = place ? take_number(*place) : 0;
      if (started > step.sequence) continue;
      ++named;
      if (!place || place->empty())
        append(silent, rank_name(peer));
      else
        append(late, rank_name(peer) + " has not started " + step.where + " (" + *place + ")");
    }
    if (!silent.empty()) append(late, silent + " has not told where it is: stopped, or cut off");
    return late;
  }

  const std::unique_ptr<Board> board_;
  const int rank_, ranks_;
  const std::function<void()> fail_;
  const Timing timing_;

  // Of the thread.
  uint64_t seen_ = 0;
  Clock::time_point since_ = Clock::now();
  bool told_ = false;  // the board knows where this rank has been since `since_`

  std::mutex mutex_;  // of everything below
  std::condition_variable changed_;
  std::deque<Step> steps_;  // started and not finished
  std::string last_;        // the latest that was finished
  uint64_t started_ = 0, moves_ = 0;
  bool asked_ = false, stopped_ = false, talking_ = false, ended_ = false;
  std::string verdict_, lateness_;

  std::thread thread_;  // of the owner
};

Watch::Watch(std::unique_ptr<Board> board, int rank, int ranks, std::function<void()> fail,
             const Timing& timing)
    : shared_(std::make_shared<Shared>(std::move(board), rank, ranks, std::move(fail), timing)) {
  shared_->start(shared_);
}

Watch::Watch(std::unique_ptr<Board> board, int rank, int ranks, std::function<void()> fail)
    : Watch(std::move(board), rank, ranks, std::move(fail), Timing()) {}

Watch::~Watch() {
  shared_->stop();
}

void Watch::started(Step step) {
  shared_->started(std::move(step));
}

void Watch::finished() {
  shared_->finished();
}

Explanation Watch::explain() {
  return shared_->explain();
}

}  // namespace zen
