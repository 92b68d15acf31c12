#include "core/cpu_device.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "oracle.h"

namespace zen::test {
namespace {

constexpr Identity kPush{.layout = 0x1234, .sequence = 5, .phase = 0, .chunk = 0, .source = 0};
constexpr Identity kPull{.layout = 0x1234, .sequence = 5, .phase = 1, .chunk = 0, .source = 0};

Identity from(Identity identity, int source) {
  identity.source = static_cast<uint16_t>(source);
  return identity;
}

// All ranks of an exchange, one after the other on one device.
class Exchanged {
 public:
  Exchanged(CpuDevice& device, std::vector<TestGradient>& gradients, const Placement& placement,
            const EncodeOptions& options)
      : device_(device), gradients_(gradients), placement_(placement), options_(options) {}

  void run() {
    for (size_t rank = 0; rank < gradients_.size(); ++rank)
      pushes_.push_back(
          device_.encode(device_.select(gradients_[rank].view(), placement_, placement_.all()),
                         options_, from(kPush, static_cast<int>(rank))));
    for (int owner = 0; owner < placement_.owners(); ++owner) merge(owner);
    for (TestGradient& gradient : gradients_)  // a dense message lists zeros too
      EXPECT_GE(device_.decode_write(updates_, gradient.view()), listed_);
  }

 private:
  void merge(int owner) {
    const Shard shard = placement_.shard(owner, placement_.all());
    const DType dtype = gradients_.front().dtype();
    std::vector<Incoming> incoming;
    for (size_t rank = 0; rank < pushes_.size(); ++rank)
      incoming.push_back(
          {pushes_[rank][static_cast<size_t>(owner)], from(kPush, static_cast<int>(rank)), dtype});
    const Merged merged = device_.merge(incoming, shard, dtype, static_cast<float>(pushes_.size()),
                                        options_, from(kPull, owner));
    updates_.push_back({merged.message, from(kPull, owner), shard});
    listed_ += merged.count;
  }

  CpuDevice& device_;
  std::vector<TestGradient>& gradients_;
  const Placement& placement_;
  EncodeOptions options_;
  std::vector<std::vector<Buffer>> pushes_;
  std::vector<Update> updates_;
  uint64_t listed_ = 0;
};

class CpuDeviceTest : public testing::TestWithParam<std::tuple<DType, Choice, double>> {};

TEST_P(CpuDeviceTest, exchange_leaves_the_mean_on_every_rank) {
  const auto [dtype, choice, density] = GetParam();
  constexpr uint64_t kElems = 9001;
  for (Isa isa : supported_isas()) {
    CpuDevice device(isa);
    for (int ranks : {1, 2, 4, 7}) {
      SCOPED_TRACE(std::string(zen::name_of(isa)) + ", ranks " + std::to_string(ranks));
      std::vector<TestGradient> gradients;
      std::vector<float> sums(kElems, 0.0f);
      for (int rank = 0; rank < ranks; ++rank) {
        gradients.push_back(make_gradient(dtype, kElems, Pattern::uniform, density,
                                          static_cast<uint64_t>(rank + 1)));
        for (uint64_t elem = 0; elem < kElems; ++elem)
          sums[elem] += from_bits(dtype, gradients.back().bits(elem));
      }
      const auto placement = Placement::make(PlacementKind::hashed, kElems, ranks, 3);
      Exchanged(device, gradients, *placement, {choice, ranks % 2 == 0}).run();
      TestGradient expected(dtype, kElems);
      for (uint64_t elem = 0; elem < kElems; ++elem)
        expected.set(elem, sums[elem] / static_cast<float>(ranks));
      for (const TestGradient& gradient : gradients) expect_same(gradient, expected);
    }
    EXPECT_EQ(device.pool().usage().in_use, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Everything, CpuDeviceTest,
                         testing::Combine(testing::ValuesIn(kDTypes),
                                          testing::Values(Choice::dense, Choice::words,
                                                          Choice::cheapest),
                                          testing::Values(0.0, 0.02, 0.6, 1.0)));

TEST(CpuDeviceErrors, a_message_of_another_exchange_writes_nothing) {
  CpuDevice device;
  TestGradient gradient = make_gradient(DType::f32, 1000, Pattern::uniform, 0.5, 1);
  const auto placement = Placement::make(PlacementKind::whole, 1000, 1, 0);
  const Shard shard = placement->shard(0, placement->all());
  const auto messages = device.encode(device.select(gradient.view(), *placement, placement->all()),
                                      Choice::words, kPush);
  Identity other = kPush;
  ++other.sequence;
  TestGradient target(DType::f32, 1000);
  const Update updates[] = {{messages[0], other, shard}};
  EXPECT_THROW(device.decode_write(updates, target.view()), MalformedMessage);
  expect_same(target, TestGradient(DType::f32, 1000));
  const Incoming incoming{messages[0], other, DType::f32};
  EXPECT_THROW(device.merge({&incoming, 1}, shard, DType::f32, 1, Choice::words, kPull),
               MalformedMessage);
}

}  // namespace
}  // namespace zen::test
