#include "checks.h"

#include <algorithm>
#include <random>

#include "core/cpu_device.h"
#include "gradients.h"

namespace zen::bench {

namespace {

using test::TestGradient;

struct Case {
  DType dtype;
  uint64_t numel;
  double density;
  PlacementKind kind;
  int ranks;
  EncodeOptions options;
  uint64_t seed;

  std::string name() const {
    return std::string(name_of(dtype)) + ", " + std::to_string(numel) + " elements, density " +
           std::to_string(density) + ", placement " + std::to_string(static_cast<int>(kind)) +
           ", " + std::to_string(ranks) + " ranks, choice " +
           std::to_string(static_cast<int>(options.choice)) +
           (options.pack_values ? ", packed" : "") + (options.narrow_to ? ", narrowed" : "") +
           ", seed " + std::to_string(seed);
  }
};

Case draw(uint64_t seed) {
  std::mt19937_64 random(seed);
  constexpr uint64_t kSizes[] = {0, 1, 63, 64, 65, 4097, 70001, 1'000'003};
  constexpr double kDensities[] = {0, 0.002, 0.03, 0.3, 1};
  constexpr PlacementKind kKinds[] = {PlacementKind::hashed, PlacementKind::whole,
                                      PlacementKind::ranges, PlacementKind::hashed_elements};
  const auto pick = [&](const auto& list) { return list[random() % std::size(list)]; };
  const DType dtype = static_cast<DType>(random() % 3);
  const auto choice = static_cast<Choice>(random() % 8);
  EncodeOptions options(choice, random() % 3 == 0);
  if (dtype == DType::f32 && random() % 3 == 0) options.narrow_to = DType::bf16;
  return {dtype,   pick(kSizes), pick(kDensities), pick(kKinds), 1 + static_cast<int>(random() % 4),
          options, seed};
}

Identity identity_of(uint8_t phase, int source) {
  return {.layout = 1,
          .sequence = 2,
          .phase = phase,
          .chunk = 3,
          .source = static_cast<uint16_t>(source)};
}

// One exchange of all ranks, on both devices side by side.
class Exchange {
 public:
  Exchange(Gpu& gpu, const Case& of)
      : gpu_(gpu),
        case_(of),
        placement_(
            Placement::make(of.kind, of.numel, of.kind == PlacementKind::whole ? 1 : of.ranks, 7)),
        wire_(of.options.narrow_to.value_or(of.dtype)) {}

  // What differed first; empty if nothing did.
  std::string run() {
    for (int rank = 0; rank < case_.ranks; ++rank)
      if (!push(rank)) return "push of rank " + std::to_string(rank);
    for (int owner = 0; owner < placement_->owners(); ++owner)
      if (!pull(owner)) return "pull of owner " + std::to_string(owner);
    for (int rank = 0; rank < case_.ranks; ++rank)
      if (!decode(rank)) return "gradient of rank " + std::to_string(rank);
    return "";
  }

 private:
  bool same(const Buffer& on_gpu, const Buffer& on_host) {
    const Buffer copy = gpu_.download(on_gpu);
    return copy.bytes == on_host.bytes &&
           std::equal(copy.data, copy.data + copy.bytes, on_host.data);
  }

  bool push(int rank) {
    TestGradient gradient =
        test::make_gradient(case_.dtype, case_.numel, test::Pattern::uniform, case_.density,
                            case_.seed * 10 + static_cast<uint64_t>(rank));
    const Gradient host = gradient.view();
    Gradient device = host;
    device.data = gpu_.upload(host.data.span());
    const Identity identity = identity_of(0, rank);
    const WordRange all = placement_->all();
    host_pushed_.push_back(
        cpu_.encode(cpu_.select(host, *placement_, all), case_.options, identity));
    pushed_.push_back(gpu_.device().encode(gpu_.device().select(device, *placement_, all),
                                           case_.options, identity));
    host_.push_back(std::move(gradient));
    device_.push_back(device);
    bool equal = true;
    for (size_t owner = 0; owner < pushed_.back().size(); ++owner)
      equal = equal && same(pushed_.back()[owner], host_pushed_.back()[owner]);
    return equal;
  }

  bool pull(int owner) {
    std::vector<Incoming> device, host;
    for (int rank = 0; rank < case_.ranks; ++rank) {
      const auto from = static_cast<size_t>(rank), to = static_cast<size_t>(owner);
      device.push_back({pushed_[from][to], identity_of(0, rank), wire_});
      host.push_back({host_pushed_[from][to], identity_of(0, rank), wire_});
    }
    const Shard shard = placement_->shard(owner, placement_->all());
    const Identity identity = identity_of(1, owner);
    EncodeOptions options = case_.options;
    options.narrow_to = {};
    const auto divisor = static_cast<float>(case_.ranks);
    updates_.push_back(
        {gpu_.device().merge(device, shard, wire_, divisor, options, identity).message, identity,
         shard, wire_});
    host_updates_.push_back({cpu_.merge(host, shard, wire_, divisor, options, identity).message,
                             identity, shard, wire_});
    return same(updates_.back().message, host_updates_.back().message);
  }

  bool decode(int rank) {
    const auto at = static_cast<size_t>(rank);
    gpu_.device().decode_write(updates_, device_[at]);
    cpu_.decode_write(host_updates_, host_[at].view());
    return same(device_[at].data, host_[at].view().data);
  }

  Gpu& gpu_;
  CpuDevice cpu_;
  const Case& case_;
  std::shared_ptr<const Placement> placement_;
  DType wire_;
  std::vector<TestGradient> host_;
  std::vector<Gradient> device_;
  std::vector<std::vector<Buffer>> pushed_, host_pushed_;  // by rank and owner
  std::vector<Update> updates_, host_updates_;
};

}  // namespace

std::vector<std::string> check_steps(Gpu& gpu, uint64_t cases) {
  std::vector<std::string> differences;
  for (uint64_t seed = 0; seed < cases; ++seed) {
    const Case one = draw(seed);
    try {
      const std::string difference = Exchange(gpu, one).run();
      if (!difference.empty()) differences.push_back(one.name() + ": " + difference);
    } catch (const std::exception& error) {
      differences.push_back(one.name() + ": " + error.what());
    }
  }
  return differences;
}

}  // namespace zen::bench
