#include "plan/dense_fit.h"

#include <gtest/gtest.h>

#include "backend/trace/trace_device.h"
#include "base/units.h"
#include "model/family/public_models.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;

std::unique_ptr<LoadedModel> counted(std::string_view name) {
  const auto model = find_public_model(name);
  EXPECT_TRUE(model.ok());
  const auto device = make_trace_device();
  auto loaded = assume_model(model->config_json, *device, {});
  EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().to_string());
  return std::move(loaded).value();
}

TEST(DenseFit, PublishedModelsHaveTheParametersThatTheirPublishersName) {
  const std::pair<std::string_view, uint64_t> published[] = {
      {"qwen3-8b", 8'190'735'360},         {"qwen3-4b-2507", 4'022'468'096},
      {"qwen3.8-27b", 26'895'998'464},     {"llama-3.1-8b", 8'030'261'248},
      {"llama-3.2-3b", 3'212'749'824},     {"ministral-3-8b", 8'489'553'920},
      {"mistral-7b-v0.1", 7'241'732'096},  {"smollm3-3b", 3'075'098'624},
      {"gemma-4-31b", 30'697'345'280},     {"granite-swash-2b", 2'144'463'840},
      {"muse-glimmer-30b", 27'854'780'928}};
  for (const auto& [name, parameters] : published) {
    EXPECT_EQ(counted(name)->dense.parameters, parameters) << name;
  }
}

TEST(DenseFit, AModelLargerThanMemoryIsRefusedWithTheTypeThatWouldFit) {
  const auto model = counted("qwen3.8-27b");
  EXPECT_TRUE(check_dense_fit(*model, {64 * kGiB, 4096, 512}).ok());
  expect_error(check_dense_fit(*model, {12 * kGiB, 4096, 512}), ErrorCode::kResourceExhausted,
               {"12.0 GiB", "weights take", "4096 tokens", "Q3_K", "--stream-dense"});
  expect_error(check_dense_fit(*model, {2 * kGiB, 4096, 512}), ErrorCode::kResourceExhausted,
               {"no type of weights would fit"});
}

TEST(DenseFit, ADeviceHoldsAPartOfTheWeights) {
  const auto model = counted("qwen3.8-27b");
  EXPECT_TRUE(check_dense_fit(*model, {8 * kGiB, 4096, 512, 8 * kGiB}).ok());
  expect_error(check_dense_fit(*model, {4 * kGiB, 4096, 512, 8 * kGiB}),
               ErrorCode::kResourceExhausted, {"the device holds 8.00 GiB", "Q3_K"});
}

TEST(DenseFit, ExpertsMayStayOnTheDrive) {
  const auto model = counted("qwen3-30b-a3b");
  EXPECT_TRUE(check_dense_fit(*model, {512 * kMiB, 4096, 512}).ok());
}

}  // namespace
}  // namespace moeflux
