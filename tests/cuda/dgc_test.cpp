// DGC on CudaDevice against CpuDevice: the same messages, residuals, momenta, samples and budget.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/cpu_device.h"
#include "core/dgc_pass.h"
#include "core/dgc_sample.h"
#include "gpu.h"
#include "gradients.h"

namespace zen::test {
namespace {

struct Case {
  DType dtype, memory;
  uint64_t numel;
  PlacementKind kind;
  bool residual, momentum, nesterov, masking, samples;
  uint64_t budget;
  Pattern pattern;
  uint64_t seed;
};

Case draw(uint64_t seed) {
  std::mt19937_64 random(seed);
  constexpr uint64_t kSizes[] = {0, 1, 64, 65, 1021, 4097, 20001};
  constexpr PlacementKind kKinds[] = {PlacementKind::hashed, PlacementKind::whole,
                                      PlacementKind::ranges, PlacementKind::hashed_elements};
  const DType dtype = static_cast<DType>(random() % 3);
  const bool residual = random() % 4 != 0;
  return {.dtype = dtype,
          .memory = random() % 2 == 0 ? DType::f32 : dtype,
          .numel = kSizes[random() % std::size(kSizes)],
          .kind = kKinds[random() % 4],
          .residual = residual,
          .momentum = residual && random() % 2 == 0,
          .nesterov = random() % 2 == 0,
          .masking = random() % 2 == 0,
          .samples = random() % 2 == 0,
          .budget = random() % 2 == 0 ? UINT64_MAX : random() % 300,
          .pattern = random() % 3 == 0 ? Pattern::special : Pattern::uniform,
          .seed = seed};
}

// What a pass reads and changes: on the host, or a copy on the GPU.
struct Memory {
  Buffer gradient, residual, momentum;
  DgcSamples samples;
  DgcPass pass;
  std::optional<DgcSampler> sampler;
};

Buffer host_copy(const Buffer& of) {
  auto bytes = std::make_shared<std::vector<std::byte>>(of.data, of.data + of.bytes);
  return {bytes->data(), bytes->size(), bytes};
}

class Comparison {
 public:
  Comparison(const Case& of, Gpu& gpu)
      : case_(of),
        gpu_(gpu),
        cuda_(gpu.device()),
        placement_(Placement::make(of.kind, of.numel, of.kind == PlacementKind::whole ? 1 : 3, 5)) {
    fill(host_);
    host_.gradient = array(of.dtype, of.pattern, 1);
    if (of.residual) host_.residual = array(of.memory, Pattern::uniform, 2);
    if (of.momentum) host_.momentum = array(of.memory, Pattern::uniform, 3);
    fill(device_);
    device_.gradient = gpu.upload(host_.gradient.span());
    if (of.residual) device_.residual = gpu.upload(host_.residual.span());
    if (of.momentum) device_.momentum = gpu.upload(host_.momentum.span());
    for (Memory* memory : {&host_, &device_}) {
      memory->pass.residual = memory->residual.data;
      memory->pass.momentum = memory->momentum.data;
    }
  }

  void run() {
    if (case_.samples) {  // as the first iteration does
      cpu_.sample(*host_.sampler, view(host_), host_.pass);
      cuda_.sample(*device_.sampler, view(device_), device_.pass);
      expect_same_samples();
    }
    for (const WordRange range : placement_->split(case_.seed % 2 == 0 ? 1 : 3)) {
      const Identity identity{};
      const auto expected =
          cpu_.encode(cpu_.select(view(host_), *placement_, range), Choice::words, identity);
      const auto found =
          cuda_.encode(cuda_.select(view(device_), *placement_, range), Choice::words, identity);
      for (size_t owner = 0; owner < expected.size(); ++owner)
        expect_same(found[owner], expected[owner], "message to " + std::to_string(owner));
      expect_same_samples();
      EXPECT_EQ(device_.pass.budget, host_.pass.budget);
    }
    expect_same(device_.gradient, host_.gradient, "gradient");
    expect_same(device_.residual, host_.residual, "residual");
    expect_same(device_.momentum, host_.momentum, "momentum");
  }

 private:
  Buffer array(DType dtype, Pattern pattern, uint64_t salt) {
    TestGradient gradient = make_gradient(dtype, case_.numel, pattern, 0.6, case_.seed * 10 + salt);
    const Buffer bytes = gradient.view().data;
    Buffer copy = host_copy(bytes);
    if (salt == 1) return copy;
    return copy;
  }

  void fill(Memory& memory) {
    memory.pass.rule = {case_.momentum ? 0.9f : 0, case_.nesterov, case_.masking};
    memory.pass.memory = case_.memory;
    memory.pass.gain = 0.5f;
    memory.pass.send_scale = 4;
    memory.pass.unscale = 0.25f;
    memory.pass.threshold = 0x3f400000u;  // 0.75
    memory.pass.budget = case_.budget;
    if (!case_.samples) return;
    // Few are wanted, so that samples are thinned out on the way.
    memory.sampler.emplace(memory.samples, 40, 64, 3,
                           std::vector<DgcSegment>{{0, case_.numel / 3, 1, true},
                                                   {case_.numel / 3, case_.numel / 2, 2, false},
                                                   {case_.numel / 2, case_.numel, 3, true}});
    memory.pass.sampler = &*memory.sampler;
  }

  Gradient view(Memory& memory) {
    return {memory.gradient, case_.dtype, case_.numel, &memory.pass};
  }

  void expect_same(const Buffer& cuda, const Buffer& cpu, const std::string& what) {
    if (cpu.bytes == 0 && cuda.bytes == 0) return;
    const Buffer copy = gpu_.download(cuda);
    ASSERT_EQ(copy.bytes, cpu.bytes) << what;
    for (size_t at = 0; at < copy.bytes; ++at)
      ASSERT_EQ(copy.data[at], cpu.data[at]) << what << " differs at byte " << at;
  }

  void expect_same_samples() {
    EXPECT_EQ(device_.samples.stride, host_.samples.stride);
    EXPECT_EQ(device_.samples.now, host_.samples.now);
    EXPECT_EQ(device_.samples.next, host_.samples.next);
  }

  Case case_;
  Gpu& gpu_;
  CpuDevice cpu_{Isa::scalar};
  cuda::CudaDevice cuda_;
  std::shared_ptr<const Placement> placement_;
  Memory host_, device_;
};

TEST(CudaDeviceDgc, passes_are_those_of_the_cpu) {
  for (uint64_t seed = 0; seed < 3 * ZEN_SCHEDULES; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Gpu gpu(seed);
    const simulator::Use use(gpu.machine());
    Comparison(draw(seed), gpu).run();
    gpu.finish();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace zen::test
