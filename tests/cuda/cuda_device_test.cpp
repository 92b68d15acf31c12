// CudaDevice on the simulator against CpuDevice: the same bytes from every step, under every
// schedule.
#include "cuda/cuda_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/cpu_device.h"
#include "core/error.h"
#include "gpu.h"
#include "gradients.h"

namespace zen::test {
namespace {

constexpr Identity kPush{.layout = 0x1234, .sequence = 5, .phase = 0, .chunk = 2, .source = 0};

Identity of(uint8_t phase, int source) {
  Identity identity = kPush;
  identity.phase = phase;
  identity.source = static_cast<uint16_t>(source);
  return identity;
}

constexpr Choice kChoices[] = {Choice::dense,    Choice::words,       Choice::positions,
                               Choice::bitmap,   Choice::coo,         Choice::blocks,
                               Choice::cheapest, Choice::coo_or_dense};
constexpr double kDensities[] = {0, 0.002, 0.03, 0.3, 0.97, 1};

struct Case {
  DType dtype;
  uint64_t numel;
  Pattern pattern;
  double density;
  PlacementKind kind;
  int ranks;
  Choice choice;
  uint64_t seed;
  bool packed = false;

  EncodeOptions options() const { return {choice, packed}; }
  std::string name() const {
    return std::string(zen::name_of(dtype)) + ", " + std::to_string(numel) + " elements, " +
           name_of(pattern) + ", density " + std::to_string(density) + ", placement " +
           std::to_string(static_cast<int>(kind)) + ", " + std::to_string(ranks) +
           " ranks, choice " + std::to_string(static_cast<int>(choice)) + ", seed " +
           std::to_string(seed) + (packed ? ", packed" : "");
  }
};

std::vector<std::byte> bytes_of(const Buffer& message) {
  return {message.data, message.data + message.bytes};
}

// A gradient in the memory of a GPU.
class GpuGradient {
 public:
  GpuGradient(Gpu& gpu, TestGradient gradient)
      : gpu_(gpu),
        memory_(gpu.upload({gradient.view().data.data, gradient.view().data.bytes})),
        host_(std::move(gradient)) {}

  Gradient view() const { return {memory_, host_.dtype(), host_.numel()}; }
  // The GPU's copy, when all work is done.
  TestGradient& download() {
    const Buffer bytes = gpu_.download(memory_);
    std::copy_n(bytes.data, bytes.bytes, host_.view().data.data);
    return host_;
  }

 private:
  Gpu& gpu_;
  Buffer memory_;
  TestGradient host_;
};

void expect_same_bytes(const Buffer& cuda, const Buffer& cpu, const std::string& what) {
  ASSERT_EQ(cuda.bytes, cpu.bytes) << what;
  const auto a = bytes_of(cuda), b = bytes_of(cpu);
  const auto difference = std::ranges::mismatch(a, b);
  EXPECT_TRUE(a == b) << what << " differs at byte " << difference.in1 - a.begin() << " of "
                      << a.size();
}

void expect_same_bits(const TestGradient& cuda, const TestGradient& cpu) {
  for (uint64_t elem = 0; elem < cpu.numel(); ++elem)
    ASSERT_EQ(cuda.bits(elem), cpu.bits(elem)) << "element " << elem;
}

// One exchange, step by step on both devices. The messages of one are the input of both.
class Comparison {
 public:
  Comparison(const Case& parameters, Gpu& gpu)
      : case_(parameters),
        gpu_(gpu),
        cuda_(gpu.device()),
        placement_(Placement::make(parameters.kind, parameters.numel,
                                   parameters.kind == PlacementKind::whole ? 1 : parameters.ranks,
                                   7)) {
    for (int rank = 0; rank < case_.ranks; ++rank) {
      gradients_.push_back(make_gradient(case_.dtype, case_.numel, case_.pattern, case_.density,
                                         case_.seed * 100 + static_cast<uint64_t>(rank)));
      own_.emplace_back(gpu, gradients_.back());
    }
  }

  void run() {
    const auto ranges = placement_->split(case_.numel > 3000 ? 2 : 1);
    for (const WordRange range : ranges) {
      push(range);
      for (int owner = 0; owner < placement_->owners(); ++owner) reduce(owner, range);
      pull();
      if (testing::Test::HasFailure()) return;
    }
    for (int rank = 0; rank < case_.ranks; ++rank)
      expect_same_bits(own_[static_cast<size_t>(rank)].download(),
                       gradients_[static_cast<size_t>(rank)]);
  }

 private:
  void push(WordRange range) {
    pushed_.clear();
    cpu_pushed_.clear();
    for (int rank = 0; rank < case_.ranks; ++rank) {
      const auto at = static_cast<size_t>(rank);
      Selection cpu = cpu_.select(gradients_[at].view(), *placement_, range);
      const uint64_t waits = gpu_.machine().counters.synchronisations;
      Selection cuda = cuda_.select(own_[at].view(), *placement_, range);
      for (size_t owner = 0; owner < cpu.size(); ++owner) {
        EXPECT_EQ(cuda[owner].count, cpu[owner].count);
        EXPECT_EQ(cuda[owner].present_words, cpu[owner].present_words);
        EXPECT_EQ(cuda[owner].full_words, cpu[owner].full_words);
      }
      const auto expected = cpu_.encode(std::move(cpu), case_.options(), of(0, rank));
      const auto found = cuda_.encode(std::move(cuda), case_.options(), of(0, rank));
      EXPECT_EQ(gpu_.machine().counters.synchronisations, waits + select_waits() + case_.packed)
          << "select and encode";
      for (size_t owner = 0; owner < expected.size(); ++owner)
        expect_same_bytes(gpu_.download(found[owner]), expected[owner],
                          "push to " + std::to_string(owner));
      pushed_.push_back(found);
      cpu_pushed_.push_back(expected);
    }
  }

  void reduce(int owner, WordRange range) {
    const Shard shard = placement_->shard(owner, range);
    std::vector<Incoming> incoming, cpu_incoming;
    for (int rank = 0; rank < case_.ranks; ++rank) {
      const auto at = static_cast<size_t>(rank), to = static_cast<size_t>(owner);
      incoming.push_back({pushed_[at][to], of(0, rank), case_.dtype});
      cpu_incoming.push_back({cpu_pushed_[at][to], of(0, rank), case_.dtype});
    }
    // Partial sums are float32, whatever the gradient is.
    const DType dtype = case_.seed % 3 == 0 ? DType::f32 : case_.dtype;
    const auto divisor = static_cast<float>(case_.ranks);
    const Merged cpu =
        cpu_.merge(cpu_incoming, shard, dtype, divisor, case_.options(), of(1, owner));
    const uint64_t waits = gpu_.machine().counters.synchronisations;
    const Merged cuda = cuda_.merge(incoming, shard, dtype, divisor, case_.options(), of(1, owner));
    EXPECT_EQ(gpu_.machine().counters.synchronisations, waits + 1 + case_.packed) << "merge";
    EXPECT_EQ(cuda.count, cpu.count);
    expect_same_bytes(gpu_.download(cuda.message), cpu.message,
                      "pull from " + std::to_string(owner));
    // What is decoded has the gradient's dtype.
    const Buffer message =
        dtype == case_.dtype
            ? cuda.message
            : cuda_.merge(incoming, shard, case_.dtype, divisor, case_.options(), of(1, owner))
                  .message;
    updates_.push_back({message, of(1, owner), shard});
    cpu_updates_.push_back({gpu_.download(message), of(1, owner), shard});
  }

  void pull() {
    for (size_t rank = 0; rank < gradients_.size(); ++rank) {
      const uint64_t listed = cpu_.decode_write(cpu_updates_, gradients_[rank].view());
      const uint64_t waits = gpu_.machine().counters.synchronisations;
      EXPECT_EQ(cuda_.decode_write(updates_, own_[rank].view()), listed);
      EXPECT_EQ(gpu_.machine().counters.synchronisations, waits + 1) << "decode_write";
    }
    updates_.clear();
    cpu_updates_.clear();
  }

  // Algorithm 1 waits for the number of non-zeros, too, and again if its serial memory was too
  // small.
  uint64_t select_waits() const { return case_.kind == PlacementKind::hashed_elements ? 2 : 1; }

  Case case_;
  Gpu& gpu_;
  CpuDevice cpu_;
  cuda::CudaDevice cuda_;
  std::shared_ptr<const Placement> placement_;
  std::vector<TestGradient> gradients_;                   // the CPU's
  std::vector<GpuGradient> own_;                          // the same on the GPU
  std::vector<std::vector<Buffer>> pushed_, cpu_pushed_;  // by rank and owner
  std::vector<Update> updates_, cpu_updates_;
};

void compare(const Case& parameters) {
  SCOPED_TRACE(parameters.name());
  Gpu gpu(parameters.seed);
  const simulator::Use use(gpu.machine());
  Comparison(parameters, gpu).run();
  gpu.finish();
}

// Every size with every encoding; the other axes go round.
class CudaDeviceTest : public testing::TestWithParam<Choice> {};

TEST_P(CudaDeviceTest, every_step_gives_the_bytes_of_the_cpu) {
  constexpr uint64_t kSizes[] = {0, 1, 63, 64, 65, 127, 257, 1021, 2048, 4097};
  constexpr PlacementKind kKinds[] = {PlacementKind::hashed, PlacementKind::whole,
                                      PlacementKind::ranges, PlacementKind::hashed_elements};
  std::mt19937_64 random(static_cast<uint64_t>(GetParam()));
  for (uint64_t seed = 0; seed < ZEN_SCHEDULES; ++seed) {
    Pattern pattern = kPatterns[random() % std::size(kPatterns)];
    if (pattern == Pattern::special) pattern = Pattern::uniform;  // sums have a NaN of their own
    compare({kDTypes[seed % 3], kSizes[random() % std::size(kSizes)], pattern,
             kDensities[random() % std::size(kDensities)], kKinds[random() % 4],
             1 + static_cast<int>(random() % 4), GetParam(), seed, random() % 3 == 0});
    if (HasFailure()) return;
  }
}

// Several chunks of packed values, of every type, sparse and dense.
TEST_P(CudaDeviceTest, packed_values) {
  if (GetParam() == Choice::coo_or_dense) return;  // goes by the size of the values as they are
  for (uint64_t seed = 0; seed < std::max<uint64_t>(3, ZEN_SCHEDULES / 4); ++seed)
    compare({kDTypes[seed % 3], 9000 + seed, Pattern::uniform, seed % 2 == 0 ? 0.7 : 1,
             PlacementKind::hashed, 2, GetParam(), seed, true});
}

TEST_P(CudaDeviceTest, several_tiles_of_one_owner) {
  compare({DType::bf16, 70001, Pattern::uniform, 0.05, PlacementKind::whole, 2, GetParam(), 1});
}

INSTANTIATE_TEST_SUITE_P(Choices, CudaDeviceTest, testing::ValuesIn(kChoices));

// What opening a message ends with: nothing, or the error's text.
template <class F>
std::optional<std::string> error_of(F&& f) {
  try {
    f();
  } catch (const MalformedMessage& error) {
    return error.what();
  }
  return std::nullopt;
}

class HostileTest : public testing::TestWithParam<Choice> {};

// A byte is changed, or the end cut off: both devices accept the message, or both refuse it with
// the same words and leave the gradient alone.
TEST_P(HostileTest, both_devices_accept_the_same_messages) {
  std::mt19937_64 random(11);
  int refused = 0;
  const auto placement = Placement::make(PlacementKind::hashed, 3001, 2, 7);
  const Shard shard = placement->shard(1, placement->all());
  for (uint64_t seed = 0; seed < ZEN_SCHEDULES; ++seed) {
    Gpu gpu(seed);
    const simulator::Use use(gpu.machine());
    cuda::CudaDevice cuda = gpu.device();
    CpuDevice cpu;
    const Pattern pattern = seed % 2 == 0 ? Pattern::rows : Pattern::uniform;
    TestGradient gradient =
        make_gradient(DType::bf16, 3001, pattern, kDensities[1 + seed % 4], seed);
    const auto messages = cpu.encode(cpu.select(gradient.view(), *placement, placement->all()),
                                     {GetParam(), seed % 3 == 0}, kPush);
    Buffer message = messages[1];
    const size_t header_or_index = random() % 4 == 0 ? 48 : message.bytes;
    message.data[random() % header_or_index] ^= std::byte{static_cast<uint8_t>(1u << random() % 8)};
    if (random() % 8 == 0) message = message.slice(0, message.bytes - random() % 9 % message.bytes);
    TestGradient by_cpu(DType::bf16, 3001);
    GpuGradient by_cuda(gpu, by_cpu);
    const Update update{message, kPush, shard}, on_gpu{gpu.upload(message.span()), kPush, shard};
    const auto expected = error_of([&] { cpu.decode_write({&update, 1}, by_cpu.view()); });
    const auto found = error_of([&] { cuda.decode_write({&on_gpu, 1}, by_cuda.view()); });
    EXPECT_EQ(found, expected) << "seed " << seed;
    expect_same_bits(by_cuda.download(), by_cpu);
    refused += expected.has_value();
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Choices, HostileTest,
                         testing::Values(Choice::dense, Choice::words, Choice::positions,
                                         Choice::bitmap, Choice::coo, Choice::blocks));

TEST(CudaDeviceSum, whole_arrays_are_added_as_on_the_cpu) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const uint64_t numel : {0, 1, 255, 256, 257, 1000}) {
      Gpu gpu(numel);
      const simulator::Use use(gpu.machine());
      cuda::CudaDevice cuda = gpu.device();
      CpuDevice cpu;
      std::vector<TestGradient> arrays;
      std::vector<Buffer> views;
      for (uint64_t seed = 0; seed < 3; ++seed)
        arrays.push_back(make_gradient(dtype, numel, Pattern::uniform, 0.5, seed));
      for (TestGradient& array : arrays) views.push_back(array.view().data);
      TestGradient by_cpu(dtype, numel), by_cuda(dtype, numel), copied(dtype, numel);
      cpu.sum(views, dtype, 3, by_cpu.view().data);
      cuda.sum(views, dtype, 3, by_cuda.view().data);
      cuda.copy(by_cuda.view().data, copied.view().data);
      gpu.finish();
      expect_same_bits(by_cuda, by_cpu);
      expect_same_bits(copied, by_cpu);
    }
}

TEST(CudaDeviceErrors, what_is_not_supported_is_refused_by_name) {
  Gpu gpu(0);
  const simulator::Use use(gpu.machine());
  cuda::CudaDevice device = gpu.device();
  GpuGradient gradient(gpu, make_gradient(DType::bf16, 300, Pattern::uniform, 0.5, 1));
  const auto words = Placement::make(PlacementKind::hashed, 300, 2, 1);
  EXPECT_THROW(device.merge({}, words->shard(0, words->all()), DType::f32, 1, Choice::words, kPush),
               InvalidArgument);
  const EncodeOptions narrowed{Choice::cheapest, false, DType::f16};
  EXPECT_THROW(device.encode(device.select(gradient.view(), *words, words->all()), narrowed, kPush),
               InvalidArgument);
  const Update update{{}, kPush, words->shard(0, words->all()), DType::f16};
  EXPECT_THROW(device.decode_write({&update, 1}, gradient.view()), InvalidArgument);
  EXPECT_EQ(device.decode_write({}, gradient.view()), 0u);
}

}  // namespace
}  // namespace zen::test
