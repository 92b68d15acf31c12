#include "core/dgc.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/cpu_device.h"
#include "core/dgc_words_scalar.h"
#include "core/error.h"
#include "core/select.h"
#include "gradients.h"
#include "oracle.h"

namespace zen::test {
namespace {

// One rank's model of several buckets, fed with gradients.
class Model {
 public:
  Model(const DgcOptions& options, std::vector<uint64_t> buckets)
      : dgc(options, nullptr), buckets_(std::move(buckets)) {
    for (uint64_t numel : buckets_) residuals_.emplace_back(DType::f32, numel);
  }

  // Returns the listed elements, numbered through all buckets.
  Lists step(const std::function<float(uint64_t)>& gradient_of) {
    Lists all;
    uint64_t first = 0;
    for (size_t b = 0; b < buckets_.size(); first += buckets_[b++]) {
      TestGradient gradient(DType::f32, buckets_[b]);
      for (uint64_t elem = 0; elem < buckets_[b]; ++elem)
        gradient.set(elem, gradient_of(first + elem));
      DgcPass& pass = dgc.begin_bucket(device_, gradient.view(),
                                       {residuals_[b].view().data.data, nullptr, DType::f32}, 1, 1,
                                       {{0, buckets_[b], static_cast<uint32_t>(b), true}});
      const auto placement = Placement::make(PlacementKind::whole, buckets_[b], 1, 0);
      for (const auto& [elem, bits] : lists_of(
               dgc_select(gradient.view(), *placement, placement->all(), pass, heap_buffer)[0]))
        all[first + elem] = bits;
    }
    dgc.end_iteration();
    return all;
  }

  Dgc dgc;

 private:
  CpuDevice device_;
  std::vector<uint64_t> buckets_;
  std::vector<TestGradient> residuals_;
};

TEST(DgcThreshold, share_stays_at_the_target_while_residuals_grow) {
  for (double density : {0.01, 0.05, 0.3}) {
    DgcOptions options;
    options.density = density;
    Model model(options, {40000, 70000, 20000});
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    double sum = 0, worst = 0;
    constexpr int kIterations = 50;
    for (int t = 0; t < kIterations; ++t) {
      const Lists lists = model.step(
          [&](uint64_t elem) { return normal(random) * (1 + 1e-5f * static_cast<float>(elem)); });
      const double share = static_cast<double>(lists.size()) / 130000 / density;
      sum += share;
      worst = std::max(worst, share);
    }
    EXPECT_NEAR(sum / kIterations, 1, 0.1) << "density " << density;
    EXPECT_LE(worst, 1.3 * 1.001) << "density " << density;
  }
}

TEST(DgcThreshold, zero_gradients_list_nothing) {
  Model model({}, {1000, 100});
  for (int t = 0; t < 3; ++t) EXPECT_TRUE(model.step([](uint64_t) { return 0.0f; }).empty());
  EXPECT_FALSE(model.step([](uint64_t elem) { return static_cast<float>(elem); }).empty());
}

TEST(DgcThreshold, equal_magnitudes_list_the_lowest_indices) {
  DgcOptions options;
  options.density = 0.1;
  Model model(options, {500, 500});
  size_t total = 0;
  for (int t = 0; t < 40; ++t) {
    const Lists lists = model.step([](uint64_t elem) { return elem % 2 == 0 ? 1.0f : -1.0f; });
    EXPECT_LE(lists.size(), 130u) << t;
    total += lists.size();
    if (t > 0) continue;
    EXPECT_TRUE(lists.contains(0) && lists.contains(64) && lists.contains(500));
    EXPECT_FALSE(lists.contains(65) || lists.contains(499));
  }
  EXPECT_NEAR(static_cast<double>(total), 40 * 100, 40 * 20);
}

TEST(DgcThreshold, few_elements_still_send_one) {
  DgcOptions options;
  options.density = 0.01;
  Model model(options, {3});
  uint64_t listed = 0;
  for (int t = 0; t < 200; ++t)
    listed += model.step([](uint64_t elem) { return 1 + static_cast<float>(elem); }).size();
  EXPECT_GE(listed, 20u);
  EXPECT_LE(listed, 400u);
}

TEST(DgcThreshold, full_density_lists_every_non_zero) {
  DgcOptions options;
  options.density = 1;
  Model model(options, {700, 65});
  for (int t = 0; t < 3; ++t)
    EXPECT_EQ(model.step([](uint64_t elem) { return static_cast<float>(elem); }).size(), 764u);
}

TEST(DgcThreshold, what_is_not_finite_is_always_sent) {
  DgcOptions options;
  options.density = 0.01;
  Model model(options, {2000});
  for (int t = 0; t < 4; ++t) {
    const Lists lists = model.step([](uint64_t elem) {
      return elem % 3 == 1 ? std::numeric_limits<float>::quiet_NaN()
                           : (elem % 3 == 2 ? std::numeric_limits<float>::infinity() : 1.0f);
    });
    EXPECT_GE(lists.size(), 1333u);
    EXPECT_LE(lists.size(), 1333u + 26u);
  }
}

TEST(DgcThreshold, a_restored_state_goes_on_alike) {
  DgcOptions options;
  const auto gradient_of = [](int t) {
    return [t](uint64_t elem) {
      return std::sin(static_cast<float>(elem) * 0.7f + static_cast<float>(t)) * 3;
    };
  };
  Model one(options, {9000, 1000}), other(options, {9000, 1000});
  for (int t = 0; t < 5; ++t) {
    one.step(gradient_of(t));
    other.step(gradient_of(t));
  }
  const DgcState saved = other.dgc.state();
  other.dgc.restore({});
  other.dgc.restore(saved);
  for (int t = 5; t < 9; ++t) {
    EXPECT_EQ(other.step(gradient_of(t)), one.step(gradient_of(t)));
    EXPECT_EQ(one.dgc.state().threshold, other.dgc.state().threshold);
  }
}

TEST(DgcThreshold, warm_up_falls_by_a_constant_factor) {
  DgcOptions options;
  options.density = 0.001;
  options.warmup = 400;
  const double expected[] = {0.2512, 0.0631, 0.01585, 0.003981, 0.001};
  for (uint64_t stage = 0; stage < 5; ++stage) {
    EXPECT_NEAR(density_at(options, stage * 100) / expected[stage], 1, 1e-3);
    EXPECT_NEAR(density_at(options, stage * 100 + 99) / expected[stage], 1, 1e-3);
  }
}

TEST(DgcClipping, scales_to_the_norm_and_leaves_infinities) {
  DgcOptions options;
  options.clip_norm = 2;
  Dgc dgc(options, nullptr);
  EXPECT_FLOAT_EQ(dgc.clip_factor(1), 1);
  EXPECT_NEAR(dgc.clip_factor(16), 0.5, 1e-6);
  EXPECT_FLOAT_EQ(dgc.clip_factor(INFINITY), 1);
  TestGradient gradient(DType::bf16, 100);
  for (uint64_t elem = 0; elem < 100; ++elem) gradient.set(elem, 2);
  EXPECT_EQ(sum_of_squares(gradient.view(), 0.5,
                           {{0, 10, 0, true}, {10, 30, 1, false}, {30, 100, 2, true}}),
            80);
}

TEST(DgcSampling, thins_to_what_is_wanted_and_no_further_than_the_ratio) {
  EXPECT_EQ(stride_of_ratio(1), 1u);
  EXPECT_EQ(stride_of_ratio(0.01), 64u);
  EXPECT_EQ(stride_of_ratio(0.5), 2u);
  TestGradient gradient(DType::f32, 100000);
  for (uint64_t elem = 0; elem < 100000; ++elem) gradient.set(elem, static_cast<float>(elem));
  DgcPass pass;
  for (const auto& [wanted, max_stride, stride] :
       {std::array<uint64_t, 3>{1000, 64, 64}, {1000, 8, 8}, {10000, 64, 8}, {200000, 64, 1}}) {
    DgcSamples samples;
    DgcSampler sampler(samples, wanted, max_stride, 1,
                       {{0, 50000, 0, true}, {50000, 60000, 1, false}, {60000, 100000, 2, true}});
    for (uint64_t elem = 0; elem < 100000; elem += 2048)
      sampler.observe(gradient.view(), pass, elem, std::min<uint64_t>(elem + 2048, 100000));
    EXPECT_EQ(samples.stride, stride);
    EXPECT_NEAR(static_cast<double>(samples.now.size()), 90000.0 / static_cast<double>(stride),
                90000.0 / static_cast<double>(stride) * 0.02 + 2);
    for (const MagnitudeBits bits : samples.now) {
      const float x = std::bit_cast<float>(bits);
      ASSERT_FALSE(x >= 50000 && x < 60000);
    }
  }
}

TEST(DgcSampling, the_threshold_is_the_kth_largest) {
  std::vector<uint32_t> values{5, 1, 4, 2, 3};
  EXPECT_EQ(threshold_for(values, 0.4), 4u);
  EXPECT_EQ(threshold_for(values, 0.41), 3u);
  EXPECT_EQ(threshold_for(values, 1e-9), 5u);
  EXPECT_EQ(threshold_for(values, 1), 1u);
  std::vector<uint32_t> zeros(9), none;
  EXPECT_EQ(threshold_for(zeros, 0.5), 1u);
  EXPECT_EQ(threshold_for(none, 0.5), 1u);
}

TEST(DgcOptions, out_of_range_is_refused) {
  for (double bad : {0.0, -1.0, 1.5, std::nan("")}) {
    DgcOptions density, ratio, momentum;
    density.density = ratio.sample_ratio = bad;
    momentum.rule.momentum = static_cast<float>(bad == 0 ? 1 : bad);
    EXPECT_THROW(Dgc(density, nullptr), InvalidArgument);
    EXPECT_THROW(Dgc(ratio, nullptr), InvalidArgument);
    EXPECT_THROW(Dgc(momentum, nullptr), InvalidArgument);
  }
}

}  // namespace
}  // namespace zen::test
