#include "convert/random/synthetic_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "backend/trace/trace_device.h"
#include "load/model_loader.h"
#include "model/config/config.h"
#include "model/family/family.h"
#include "model/family/public_models.h"
#include "plan/model_sizes.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;

SyntheticCheckpoint make(std::string_view name, const SyntheticModelOptions& options = {}) {
  auto made = make_synthetic_model(name, options);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().to_string());
  return made.ok() ? std::move(made).value() : SyntheticCheckpoint{};
}

TEST(SyntheticModel, SizesAreThoseOfTheRealCheckpoints) {
  const std::pair<const char*, double> gigabytes[] = {
      {"qwen3.6-35b-a3b", 19.5}, {"qwen3.5-122b-a10b", 68.7}, {"qwen3.5-397b-a17b", 223.0}};
  for (const auto& [name, expected] : gigabytes) {
    EXPECT_NEAR(static_cast<double>(make(name).size_bytes()) / 1e9, expected, 0.06) << name;
  }
  // 671 billion parameters, as published, at 4.5 bits each.
  EXPECT_NEAR(static_cast<double>(make("deepseek-v3").size_bytes()) / 1e9, 377.5, 0.5);
}

TEST(SyntheticModel, ASliceKeepsTheDenseLayersThatComeFirst) {
  const auto has = [](const SyntheticCheckpoint& checkpoint, std::string_view name) {
    return std::any_of(checkpoint.tensors.begin(), checkpoint.tensors.end(),
                       [&](const SyntheticTensor& tensor) { return tensor.name == name; });
  };
  const SyntheticCheckpoint slice = make("deepseek-v3", {.num_layers = 4});
  EXPECT_TRUE(has(slice, "model.layers.2.mlp.gate_proj.weight"));
  EXPECT_FALSE(has(slice, "model.layers.2.mlp.gate.weight"));
  EXPECT_TRUE(has(slice, "model.layers.3.mlp.gate.weight"));
  EXPECT_FALSE(has(slice, "model.layers.4.input_layernorm.weight"));
}

TEST(SyntheticModel, ConfigsReadAsTheSpecTheyDescribe) {
  for (const SyntheticModelShape& shape : synthetic_model_shapes()) {
    for (const int64_t layers : {int64_t{0}, int64_t{3}}) {
      auto config = Config::parse(make(shape.name, {.num_layers = layers}).config_json);
      ASSERT_TRUE(config.ok()) << config.error().to_string();
      const auto family = find_family(config->model_type());
      ASSERT_TRUE(family.ok()) << family.error().to_string();
      const auto spec = (*family)->read_spec(*config);
      ASSERT_TRUE(spec.ok()) << spec.error().to_string();
      EXPECT_EQ(spec->num_own_layers(), layers == 0 ? shape.num_layers : layers) << shape.name;
      EXPECT_TRUE(spec->unread_keys.empty()) << shape.name << ": " << spec->unread_keys.front();
    }
  }
}

// The tensors that are written are those that the family asks for, under names that it knows:
// nothing is missing and nothing is left over.
TEST(SyntheticModel, EveryShapeIsReadBackWhole) {
  const auto device = make_trace_device();
  for (const SyntheticModelShape& shape : synthetic_model_shapes()) {
    for (const SyntheticModelOptions& options :
         {SyntheticModelOptions{}, SyntheticModelOptions{.num_layers = 4},
          SyntheticModelOptions{.num_layers = 1, .bits = 8, .group_size = 128}}) {
      const SyntheticCheckpoint checkpoint = make(shape.name, options);
      const auto model = load_model(checkpoint.config_json, index_synthetic(checkpoint, 0), *device,
                                    WeightLoading::kCheckOnly);
      ASSERT_TRUE(model.ok()) << shape.name << ": " << model.error().to_string();
      const auto config = config_like(shape.name, options.num_layers);
      ASSERT_TRUE(config.ok()) << config.error().to_string();
      const auto assumed = assume_model(*config, *device, {});
      ASSERT_TRUE(assumed.ok()) << assumed.error().to_string();
      EXPECT_EQ(measure_model(**model).parameters, measure_model(**assumed).parameters)
          << shape.name;
    }
  }
}

TEST(SyntheticModel, EveryPublicModelHasAShape) {
  std::set<std::string_view> names;
  for (const SyntheticModelShape& shape : synthetic_model_shapes()) names.insert(shape.name);
  for (const PublicModel& model : public_models()) {
    EXPECT_TRUE(names.contains(model.name)) << model.name;
  }
}

TEST(SyntheticModel, FewerLayersAreTheFirstOnesWithTheSameBytes) {
  const SyntheticCheckpoint all = make("tiny");
  const SyntheticCheckpoint two = make("tiny", {.num_layers = 2});
  EXPECT_LT(two.tensors.size(), all.tensors.size());
  for (const SyntheticTensor& tensor : two.tensors) {
    const auto same = std::find_if(all.tensors.begin(), all.tensors.end(),
                                   [&](const auto& other) { return other.name == tensor.name; });
    ASSERT_NE(same, all.tensors.end()) << tensor.name;
    EXPECT_EQ(same->shape, tensor.shape);
    EXPECT_EQ(same->stream, tensor.stream);
    EXPECT_EQ(same->table, tensor.table);
  }
}

TEST(SyntheticModel, UnknownNamesAreToldWithTheNearest) {
  expect_error(make_synthetic_model("huge", {}), ErrorCode::kNotFound, {"'huge'", "synth --list"});
  expect_error(make_synthetic_model("qwen3.6-35b-a3", {}), ErrorCode::kNotFound,
               {"'qwen3.6-35b-a3'", "qwen3.6-35b-a3b"});
}

TEST(SyntheticModel, OptionsThatDoNotFitAreRefused) {
  const auto tiny = [](const SyntheticModelOptions& options) {
    return make_synthetic_model("tiny", options);
  };
  expect_error(tiny({.num_layers = 5}), ErrorCode::kInvalidArgument, {"5 layers", "has 4"});
  expect_error(tiny({.num_layers = -1}), ErrorCode::kInvalidArgument, {"-1"});
  expect_error(tiny({.bits = 3}), ErrorCode::kInvalidArgument, {"3 bits"});
  expect_error(tiny({.group_size = 16}), ErrorCode::kInvalidArgument, {"groups of 16"});
}

}  // namespace
}  // namespace moeflux
