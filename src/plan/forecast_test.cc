#include "plan/forecast.h"

#include <gtest/gtest.h>

#include "backend/trace/trace_device.h"
#include "engine/tiny_engine_test_util.h"
#include "model/family/public_models.h"
#include "quant/ggml_types.h"

namespace moeflux {
namespace {

constexpr MachineSpeeds kSpeeds{
    .drive_bytes_per_second = 1e6, .memory_bytes_per_second = 1e9, .multiply_adds_per_second = 1e9};

class ForecastTest : public TinyEngineTest {
 protected:
  Forecast forecast_with(uint64_t slots) {
    auto model = load_model(folder_.path(), *device_, WeightLoading::kCheckOnly);
    EXPECT_TRUE(model.ok());
    const MemoryPlan plan =
        plan_memory(**model, {.expert_cache_bytes = slots * (*model)->experts.slot_bytes_max()});
    const auto result = forecast(**model, plan, 100, 50, kSpeeds);
    EXPECT_TRUE(result.ok());
    return *result;
  }
  static constexpr double kExpertBytes = 3.0 * 32 * 32 * 4;
};

TEST_F(ForecastTest, ATokenReadsWhatTheCacheDoesNotHold) {
  // Two of four experts in each of two layers.
  const Forecast half = forecast_with(4);
  EXPECT_DOUBLE_EQ(half.cached_share, 0.5);
  EXPECT_DOUBLE_EQ(half.uniform.read_bytes, 0.5 * 4 * kExpertBytes);
  EXPECT_DOUBLE_EQ(half.uniform.cost.drive_seconds, 0.5 * 4 * kExpertBytes / 1e6);
  EXPECT_EQ(half.uniform.cost.limit, CostLimit::kDrive);
  EXPECT_LT(half.uniform.tokens_per_second(), half.natural_low.tokens_per_second());
  EXPECT_LT(half.natural_low.tokens_per_second(), half.natural_high.tokens_per_second());
}

TEST_F(ForecastTest, APromptReadsEachExpertOnceAtMost) {
  const Forecast half = forecast_with(4);
  EXPECT_NEAR(half.cold_prompt.read_bytes, 8 * kExpertBytes, 1.0);
  EXPECT_NEAR(half.warm_prompt.read_bytes, 4 * kExpertBytes, 1.0);
  EXPECT_NEAR(half.cold_prompt.tokens_per_second(), 50 / (8 * kExpertBytes / 1e6), 1.0);
}

TEST_F(ForecastTest, ACacheForAllReadsNothingOnceItIsWarm) {
  const Forecast all = forecast_with(8);
  EXPECT_EQ(all.uniform.read_bytes, 0.0);
  EXPECT_EQ(all.natural_low.hit_rate, 1.0);
  EXPECT_GT(all.cold_prompt.read_bytes, 0.0);
}

// 30.5 billion parameters of 48 layers, 8 of 128 experts of 2,654,208 bytes: 1.02 GB of experts a
// token, whatever else.
TEST(Forecast, CountsAPublicModelFromItsConfigAlone) {
  const auto found = find_public_model("qwen3-30b-a3b");
  ASSERT_TRUE(found.ok());
  const std::unique_ptr<Device> trace = make_trace_device();
  const auto model = assume_model(found->config_json, *trace, {});
  ASSERT_TRUE(model.ok());
  const auto result = forecast(**model, plan_memory(**model, {.expert_cache_bytes = 0}), 4096, 512,
                               {.drive_bytes_per_second = 1e9,
                                .memory_bytes_per_second = 30e9,
                                .multiply_adds_per_second = 300e9});
  ASSERT_TRUE(result.ok());
  EXPECT_NEAR(result->uniform.cost.drive_seconds, 48.0 * 8 * 2654208 / 1e9, 1e-6);
  EXPECT_NEAR(result->cold_prompt.cost.drive_seconds, 48.0 * 128 * 2654208 / 1e9, 1e-3);
  // 3.04 billion active parameters, and attention's products.
  EXPECT_GT(result->cold_prompt.cost.compute_seconds, 512 * 2.7e9 / 300e9);
  EXPECT_LT(result->cold_prompt.cost.compute_seconds, 512 * 3.5e9 / 300e9);
}

TierForecast forecast_on_device(const AssumedFormat& assumed) {
  const auto found = find_public_model("qwen3-30b-a3b");
  EXPECT_TRUE(found.ok());
  const std::unique_ptr<Device> trace = make_trace_device();
  const auto model = assume_model(found->config_json, *trace, assumed);
  EXPECT_TRUE(model.ok());
  constexpr int64_t kPrompt = 4096;
  const auto result = forecast_tiers(**model, {.home = ExpertHome::kDevice}, 4096, {&kPrompt, 1},
                                     {.device_bytes_per_second = 3e12,
                                      .bus_bytes_per_second = 50e9,
                                      .memory_bytes_per_second = 100e9,
                                      .drive_bytes_per_second = 2e9,
                                      .multiply_adds_per_second = 50e12});
  EXPECT_TRUE(result.ok());
  return *result;
}

TEST(Forecast, TakesTypesOfBlocksByWhatTheirUnpackingTakes) {
  const TierForecast affine = forecast_on_device({.bits = 4});
  const TierForecast small = forecast_on_device({.type = find_ggml_type("Q4_0")});
  const TierForecast grid = forecast_on_device({.type = find_ggml_type("IQ3_S")});
  const TierForecast other = forecast_on_device({.type = find_ggml_type("IQ3_XXS")});
  // 6.4 bits of affine groups, 10.9, and 7 of a type that was not measured.
  EXPECT_NEAR(grid.uniform.cost.device_seconds / small.uniform.cost.device_seconds, 10.9 / 6.4,
              1e-9);
  EXPECT_NEAR(grid.uniform.cost.device_seconds / other.uniform.cost.device_seconds, 10.9 / 7, 1e-9);
  EXPECT_LT(affine.uniform.cost.device_seconds, small.uniform.cost.device_seconds);
  EXPECT_NEAR(affine.prompts[0].cost.compute_seconds / grid.prompts[0].cost.compute_seconds, 0.8,
              1e-9);
}

TEST(Forecast, TakesPlainNumbersForWhatTheirArithmeticTakes) {
  const TierForecast affine = forecast_on_device({.bits = 4});
  const TierForecast plain = forecast_on_device({.type = find_ggml_type("BF16")});
  EXPECT_NEAR(affine.prompts[0].cost.compute_seconds / plain.prompts[0].cost.compute_seconds, 0.2,
              1e-9);
}

}  // namespace
}  // namespace moeflux
