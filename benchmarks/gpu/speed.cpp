#include "speed.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "core/selection.h"
#include "gradients.h"

namespace zen::bench {

namespace {

constexpr int kRanks = 8;

double median_seconds(
    Gpu& gpu, int repetitions, const std::function<void()>& step,
    const std::function<void()>& before = [] {}) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  for (int turn = 0; turn <= repetitions; ++turn) {
    before();
    gpu.settle();
    const auto begin = Clock::now();
    step();
    gpu.settle();
    if (turn > 0)  // the first one fills caches and compiles
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::ranges::nth_element(seconds, seconds.begin() + repetitions / 2);
  return seconds[static_cast<size_t>(repetitions / 2)];
}

// The exchange of one gradient among kRanks ranks, all on this GPU, without a wire.
class Exchange {
 public:
  Exchange(Gpu& gpu, DType dtype, uint64_t elements, double density, int repetitions)
      : gpu_(gpu),
        dtype_(dtype),
        elements_(elements),
        repetitions_(repetitions),
        placement_(Placement::make(PlacementKind::hashed, elements, kRanks, 1)),
        name_(std::string(name_of(dtype)) + " " + std::to_string(density).substr(0, 4)),
        gradient_(upload(density, 0)),
        scratch_(gpu.allocate(elements * size_of(dtype))) {
    for (int rank = 0; rank < kRanks; ++rank)
      for (auto& message :
           messages(upload(density, static_cast<uint64_t>(rank)), rank, *placement_))
        pushed_.push_back(std::move(message));
  }

  void time(std::vector<Timing>& timings) {
    time_select(timings, *placement_, "select + encode, " + name_);
    time_merge(timings);
    time_decode(timings);
    Timing whole{"synchronise, " + name_, 0, 0};
    for (size_t at = timings.size() - 3; at < timings.size(); ++at) {
      whole.seconds += timings[at].seconds;
      whole.bytes += timings[at].bytes;
    }
    timings.push_back(whole);
    const auto hashed = Placement::make(PlacementKind::hashed_elements, elements_, kRanks, 1);
    time_select(timings, *hashed, "Algorithm 1 + encode, " + name_);
  }

 private:
  Gradient upload(double density, uint64_t seed) {
    test::TestGradient gradient =
        test::make_gradient(dtype_, elements_, test::Pattern::uniform, density, seed);
    Gradient view = gradient.view();
    view.data = gpu_.upload(view.data.span());
    return view;
  }

  std::vector<Buffer> messages(const Gradient& gradient, int rank, const Placement& placement) {
    Selection selection = gpu_.device().select(gradient, placement, placement.all());
    values_ = present_ = 0;
    for (const ShardSelection& shard : selection) {
      values_ += static_cast<double>(shard.count);
      present_ += static_cast<double>(shard.present_words);
    }
    return gpu_.device().encode(std::move(selection), Choice::cheapest,
                                {.source = static_cast<uint16_t>(rank)});
  }

  static double bytes_of(const std::vector<Buffer>& messages) {
    double bytes = 0;
    for (const Buffer& message : messages) bytes += static_cast<double>(message.bytes);
    return bytes;
  }

  double gradient_bytes() const { return static_cast<double>(elements_ * size_of(dtype_)); }
  double slots() const { return static_cast<double>(placement_->words()); }

  void time_select(std::vector<Timing>& timings, const Placement& placement,
                   const std::string& what) {
    std::vector<Buffer> made;
    const double seconds =
        median_seconds(gpu_, repetitions_, [&] { made = messages(gradient_, 0, placement); });
    // Every element once, masks and offsets of slots, the words with values again, the messages.
    const double again =
        std::min(present_ * 64 * static_cast<double>(size_of(dtype_)), values_ * 32);
    timings.push_back(
        {what, seconds, gradient_bytes() + 48 * slots() + again + 2 * bytes_of(made)});
  }

  // Owner 0's, of which every rank has one.
  void time_merge(std::vector<Timing>& timings) {
    const Shard shard = placement_->shard(0, placement_->all());
    std::vector<Incoming> incoming;
    double bytes = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      const Buffer& message = pushed_[static_cast<size_t>(rank * kRanks)];
      incoming.push_back({message, {.source = static_cast<uint16_t>(rank)}, dtype_});
      bytes += static_cast<double>(message.bytes) + 48 * static_cast<double>(shard.slots);
    }
    Merged merged;
    const double seconds = median_seconds(gpu_, repetitions_, [&] {
      merged = gpu_.device().merge(incoming, shard, dtype_, kRanks, Choice::cheapest, {.phase = 1});
    });
    timings.push_back(
        {"merge of 8, " + name_, seconds, bytes + 2 * static_cast<double>(merged.message.bytes)});
  }

  // Rank 0's pushes to all owners, whose shards cover the gradient.
  void time_decode(std::vector<Timing>& timings) {
    std::vector<Update> updates;
    std::vector<Buffer> own(pushed_.begin(), pushed_.begin() + kRanks);
    for (int owner = 0; owner < kRanks; ++owner)
      updates.push_back(
          {own[static_cast<size_t>(owner)], {}, placement_->shard(owner, placement_->all()), {}});
    Gradient target = gradient_;
    target.data = scratch_;
    const double seconds =
        median_seconds(gpu_, repetitions_, [&] { gpu_.device().decode_write(updates, target); });
    timings.push_back(
        {"decode_write of 8, " + name_, seconds, bytes_of(own) + 64 * slots() + values_ * 32});
  }

  Gpu& gpu_;
  DType dtype_;
  uint64_t elements_;
  int repetitions_;
  std::shared_ptr<const Placement> placement_;
  std::string name_;
  Gradient gradient_;
  Buffer scratch_;
  std::vector<Buffer> pushed_;  // by rank and owner
  double values_ = 0, present_ = 0;
};

}  // namespace

std::vector<Timing> time_steps(Gpu& gpu, uint64_t elements, int repetitions) {
  const size_t bytes = elements * sizeof(float);
  const Buffer from = gpu.allocate(bytes), to = gpu.allocate(bytes);
  std::vector<Timing> timings;
  const double seconds =
      median_seconds(gpu, repetitions, [&] { gpu.copy(from, to, cudaMemcpyDeviceToDevice); });
  timings.push_back({"copy", seconds, 2.0 * static_cast<double>(bytes)});
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const double density : {0.01, 0.2}) {
      Exchange exchange(gpu, dtype, elements, density, repetitions);
      exchange.time(timings);
    }
  return timings;
}

}  // namespace zen::bench
