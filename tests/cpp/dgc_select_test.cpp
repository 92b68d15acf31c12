#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/cpu_device.h"
#include "core/dgc_words_scalar.h"
#include "core/select.h"
#include "gradients.h"
#include "oracle.h"

namespace zen::test {
namespace {

constexpr uint64_t kSizes[] = {0, 1, 63, 64, 65, 127, 1000, 2049};

float bits_to_float(MagnitudeBits bits) {
  return std::bit_cast<float>(bits);
}

// A pass and the memory it works on.
struct Fixture {
  Fixture(DType dtype, DType memory, uint64_t numel)
      : gradient(dtype, numel), residual(memory, numel), momentum(memory, numel) {
    pass.memory = memory;
  }
  Fixture(const Fixture&) = default;

  DgcPass& connect(bool with_residual, bool with_momentum) {
    pass.residual = with_residual ? residual.view().data.data : nullptr;
    pass.momentum = with_momentum ? momentum.view().data.data : nullptr;
    return pass;
  }

  TestGradient gradient, residual, momentum;
  DgcPass pass;
};

float saturated(DType dtype, double x) {
  const float limit = dtype == DType::f16    ? 65504.0f
                      : dtype == DType::bf16 ? bits_to_float(0x7f7f0000u)
                                             : bits_to_float(0x7f7fffffu);
  const float rounded = from_bits(dtype, to_bits(dtype, static_cast<float>(x)));
  return std::isinf(rounded) ? std::copysign(limit, rounded) : rounded;
}

// The rules of dgc_pass.h, an element at a time, as DGC's paper writes them.
std::vector<Lists> oracle_dgc(Fixture& f, bool with_residual, bool with_momentum,
                              const Placement& placement) {
  std::vector<Lists> lists(static_cast<size_t>(placement.owners()));
  const DType dtype = f.gradient.dtype(), memory = f.residual.dtype();
  const DgcRule& rule = f.pass.rule;
  uint64_t budget = f.pass.budget;
  for (uint64_t elem = 0; elem < f.gradient.numel(); ++elem) {
    const float g = from_bits(dtype, f.gradient.bits(elem)) * f.pass.gain;
    float v = with_residual ? from_bits(memory, f.residual.bits(elem)) : 0;
    float u = with_momentum ? from_bits(memory, f.momentum.bits(elem)) : 0;
    if (!with_momentum) {
      v = v + g;
    } else if (rule.nesterov) {
      u = rule.momentum * (u + g);
      v = v + (u + g);
    } else {
      u = rule.momentum * u + g;
      v = v + u;
    }
    const bool finite = std::isfinite(v);
    bool listed = !(std::fabs(v) < bits_to_float(f.pass.threshold));
    if (listed && finite) listed = budget > 0;
    if (listed && finite) --budget;
    if (listed) {
      const float sent = finite ? saturated(dtype, v * f.pass.send_scale) : v;
      lists[static_cast<size_t>(placement.owner(elem / kWordElems))][elem] = to_bits(dtype, sent);
      v = finite ? v - sent * f.pass.unscale : 0;
      if (rule.momentum_masking || !finite) u = 0;
    }
    f.gradient.set_bits(elem, 0);
    if (with_residual) f.residual.set(elem, saturated(memory, v));
    if (with_momentum) f.momentum.set(elem, saturated(memory, u));
  }
  f.pass.budget = budget;
  return lists;
}

// Magnitudes of all scales, exact zeros of both signs, and at times what has no magnitude.
void fill(TestGradient& gradient, std::mt19937_64& random, double density, bool special) {
  std::normal_distribution<float> normal(0, 1);
  for (uint64_t elem = 0; elem < gradient.numel(); ++elem) {
    const bool zero = static_cast<double>(random() % 1000) >= density * 1000;
    float x = zero ? (random() % 2 == 0 ? 0.0f : -0.0f) : normal(random);
    if (special && random() % 97 == 0) x = special_value(random);
    if (special && random() % 89 == 0) x = random() % 2 == 0 ? 3e38f : -6.5e4f;
    gradient.set(elem, x);
  }
}

struct Case {
  DType dtype, memory;
};

class DgcSelect : public testing::TestWithParam<Case> {};

TEST_P(DgcSelect, does_what_the_oracle_does) {
  const auto [dtype, memory] = GetParam();
  std::mt19937_64 random(7);
  for (uint64_t numel : kSizes)
    for (int variant = 0; variant < 48; ++variant) {
      const bool with_residual = variant % 4 != 0, with_momentum = variant % 4 > 1;
      const bool special = variant / 4 % 2 == 1;
      Fixture input(dtype, memory, numel);
      fill(input.gradient, random, variant % 3 == 0 ? 0.05 : 1, special);
      fill(input.residual, random, 1, false);
      fill(input.momentum, random, 1, false);
      input.pass.rule = {.momentum = with_momentum ? 0.9f : 0,
                         .nesterov = variant / 8 % 2 == 1,
                         .momentum_masking = variant / 16 % 2 == 0};
      const bool amp = variant % 5 == 1;
      input.pass.gain = amp ? 1.0f / 1024 : variant % 5 == 2 ? 0.3f : 1;
      input.pass.send_scale = amp ? 1024 : 1;
      input.pass.unscale = amp ? 1.0f / 1024 : 1;
      constexpr float kThresholds[] = {1e-45f, 0.5f, 2, 4, 1e30f};
      input.pass.threshold = magnitude_bits(kThresholds[variant % 5]);
      if (variant / 12 == 1) input.pass.budget = numel / 10;
      const auto placement = Placement::make(
          variant % 7 == 0 ? PlacementKind::ranges : PlacementKind::hashed, numel, 3, 5);

      Fixture expected = input;
      const std::vector<Lists> lists =
          oracle_dgc(expected, with_residual, with_momentum, *placement);
      for (Isa isa : supported_isas()) {
        SCOPED_TRACE(std::to_string(numel) + " elements, variant " + std::to_string(variant) +
                     ", " + zen::name_of(isa));
        Fixture actual = input;
        DgcPass& pass = actual.connect(with_residual, with_momentum);
        // The budget goes by index, so one owner at a time is another order than the oracle's.
        if (placement->kind() == PlacementKind::ranges) pass.budget = UINT64_MAX;
        if (placement->kind() == PlacementKind::ranges && input.pass.budget != UINT64_MAX) continue;
        const Selection selection = dgc_select(actual.gradient.view(), *placement, placement->all(),
                                               pass, heap_buffer, isa);
        for (size_t owner = 0; owner < lists.size(); ++owner)
          expect_same(lists_of(selection[owner]), lists[owner], dtype);
        expect_same(actual.gradient, expected.gradient);
        expect_same(actual.residual, expected.residual);
        expect_same(actual.momentum, expected.momentum);
        for (uint64_t elem = 0; elem < numel; ++elem) {
          ASSERT_TRUE(std::isfinite(from_bits(memory, actual.residual.bits(elem)))) << elem;
          ASSERT_TRUE(std::isfinite(from_bits(memory, actual.momentum.bits(elem)))) << elem;
        }
        if (input.pass.budget != UINT64_MAX) {
          EXPECT_EQ(pass.budget, expected.pass.budget);
        }
        if (HasFatalFailure()) return;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, DgcSelect,
                         testing::Values(Case{DType::f32, DType::f32}, Case{DType::f16, DType::f32},
                                         Case{DType::f16, DType::f16},
                                         Case{DType::bf16, DType::f32},
                                         Case{DType::bf16, DType::bf16}),
                         [](const auto& info) {
                           return std::string(zen::name_of(info.param.dtype)) + "_kept_in_" +
                                  zen::name_of(info.param.memory);
                         });

TEST(DgcSelectChunks, chunks_give_the_same_as_the_whole) {
  std::mt19937_64 random(3);
  Fixture input(DType::f32, DType::f32, 20011);
  fill(input.gradient, random, 1, false);
  fill(input.residual, random, 1, false);
  input.pass.threshold = magnitude_bits(2.0f);
  input.pass.budget = 1500;
  const auto placement = Placement::make(PlacementKind::whole, 20011, 1, 0);
  Fixture whole = input, cut = input;
  const std::vector<DgcSegment> segments{{0, 5000, 3, true}, {5000, 20011, 1, true}};
  DgcSamples of_whole{{}, {}, 8}, of_cut{{}, {}, 8};
  DgcSampler whole_sampler(of_whole, 1 << 20, 64, 1, segments),
      cut_sampler(of_cut, 1 << 20, 64, 1, segments);
  whole.connect(true, false).sampler = &whole_sampler;
  cut.connect(true, false).sampler = &cut_sampler;
  const Lists expected = lists_of(
      dgc_select(whole.gradient.view(), *placement, placement->all(), whole.pass, heap_buffer)[0]);
  EXPECT_EQ(expected.size(), 1500u);
  Lists actual;
  for (WordRange range : placement->split(4))
    actual.merge(
        lists_of(dgc_select(cut.gradient.view(), *placement, range, cut.pass, heap_buffer)[0]));
  expect_same(actual, expected, DType::f32);
  expect_same(cut.residual, whole.residual);
  EXPECT_EQ(of_cut.now, of_whole.now);
  EXPECT_EQ(of_cut.next, of_whole.next);
  EXPECT_NEAR(static_cast<double>(of_whole.now.size()), 20011.0 / 8, 1);
}

TEST(DgcSelectDevice, selects_as_the_gradient_says) {
  Fixture input(DType::f32, DType::f32, 300);
  for (uint64_t elem = 0; elem < 300; ++elem) input.gradient.set(elem, static_cast<float>(elem));
  DgcPass& pass = input.connect(true, false);
  pass.threshold = magnitude_bits(290.0f);
  Gradient gradient = input.gradient.view();
  gradient.dgc = &pass;
  const auto placement = Placement::make(PlacementKind::hashed, 300, 2, 0);
  CpuDevice device;
  const Selection selection = device.select(gradient, *placement, placement->all());
  EXPECT_EQ(selection[0].count + selection[1].count, 10u);
  EXPECT_EQ(input.residual.bits(289), to_bits(DType::f32, 289));
  EXPECT_EQ(input.residual.bits(290), 0u);
}

}  // namespace
}  // namespace zen::test
