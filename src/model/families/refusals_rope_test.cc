// Rotary positions that no family has are refused by the name of their key, in either dialect of
// config.json.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/families/config_test_util.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::attention_of;
using testing::config_of;
using testing::expect_error;
using testing::kInvalid;
using testing::kUnsupported;
using testing::read;
using testing::text_of;

TEST(Refusals, OtherRopeTypesInEitherDialect) {
  for (const std::string& model : testing::every_family()) {
    if (model.starts_with("inkling")) continue;  // which rotates nothing
    SCOPED_TRACE(model);
    for (const std::string type : {"dynamic", "longrope", "su"}) {
      if (model.starts_with("phi") && type != "dynamic") continue;  // whose own types they are
      const Json rope = {{"rope_type", type}, {"type", type}, {"rope_theta", 1e4}, {"factor", 2.0}};
      for (const std::string key : {"rope_parameters", "rope_scaling"}) {
        Json json = config_of(model);
        text_of(json).erase("rope_parameters");
        text_of(json).erase("rope_scaling");
        text_of(json)["rope_theta"] = 1e4;
        if (model != "beam") text_of(json)["swa_rope_theta"] = 1e4;  // which it has none of
        text_of(json)[key] = rope;
        expect_error(read(json), kUnsupported, {key, "rope_type", type});
      }
    }
  }
}

TEST(Refusals, RopeDialectsThatContradictEachOther) {
  Json json = config_of("deepseek_v3");
  Json old = json["rope_parameters"];
  old.erase("rope_theta");
  json["rope_scaling"] = old;
  EXPECT_TRUE(read(json).ok());
  json["rope_scaling"]["factor"] = 2.0;
  expect_error(read(json), kInvalid, {"rope_scaling", "factor", "2.0", "4.0"});
}

// They are from the first YaRN's configs and from vLLM.
TEST(Refusals, OtherFactorsOfYarn) {
  struct Case {
    std::string key;
    Json changes;
    Json neutral;
  };
  for (const auto& [key, changes, neutral] : std::vector<Case>{
           {"attn_factor", 0.5, 1.0},
           {"extrapolation_factor", 0.5, 1.0},
           {"apply_yarn_scaling", false, true},
       }) {
    Json json = config_of("qwen3-30b-a3b");
    json.erase("rope_parameters");
    json["rope_theta"] = 1e4;
    json["rope_scaling"] = {{"type", "yarn"},
                            {"factor", 4.0},
                            {"original_max_position_embeddings", 64},
                            {key, changes}};
    expect_error(read(json), kUnsupported, {"rope_scaling", key});
    json["rope_scaling"][key] = neutral;
    const auto spec = read(json);
    ASSERT_TRUE(spec.ok()) << spec.error().to_string();
    EXPECT_TRUE(spec->unread_keys.empty());
  }
}

TEST(Refusals, RopeKeysThatScaleQueriesByPosition) {
  for (const std::string& model : testing::every_family()) {
    if (model == "mistral4" || model == "ministral3") continue;  // whose own key it is
    // They have no base of positions.
    if (model == "kimi-k3" || model == "kimi_k3" || model.starts_with("inkling")) continue;
    Json json = config_of(model);
    const std::string rope =
        text_of(json).contains("rope_parameters") || json.contains("rope_parameters")
            ? "rope_parameters"
            : "rope_scaling";
    Json& object = text_of(json)[rope];
    if (object.is_null()) object = {{"rope_type", "default"}};
    if (model == "glm-5.3-flash") object["rope_theta"] = 1e4;  // nothing turns, so it has none
    object["llama_4_scaling_beta"] = 0.1;
    expect_error(read(json), kUnsupported, {rope + ": llama_4_scaling_beta", "0.1"});
    object["llama_4_scaling_beta"] = 0;
    EXPECT_TRUE(read(json).ok()) << model;
  }
}

TEST(Refusals, RopeThatIsProportionalAndScaled) {
  Json json = config_of("gemma4_text");
  Json& rope = json["rope_parameters"]["full_attention"];
  ASSERT_EQ(rope["rope_type"], "proportional");
  rope["factor"] = 1.0;
  EXPECT_TRUE(read(json).ok());
  rope["factor"] = 8.0;
  expect_error(read(json), kUnsupported, {"full_attention", "factor", "8"});
}

TEST(Refusals, UnknownKeysOfRopeAreListed) {
  Json json = config_of("kimi-k2");
  json["rope_scaling"]["frobnication"] = 0.1;
  const auto spec = read(json);
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->unread_keys, (std::vector<std::string>{"rope_scaling: frobnication"}));
}

TEST(Refusals, RopeScalingMayHoldNothingBesideRopeParameters) {
  Json json = config_of("deepseek_v3");
  json["rope_scaling"] = {{"factor", nullptr}};
  EXPECT_TRUE(read(json).ok());
}

TEST(Refusals, NullRopeScalingMeansNone) {
  for (const std::string model : {"glm-4.5", "qwen3-30b-a3b", "olmoe-1b-7b"}) {
    Json json = config_of(model);
    ASSERT_TRUE(json.contains("rope_scaling") && json["rope_scaling"].is_null());
    const auto with_null = read(json);
    json.erase("rope_scaling");
    const auto without = read(json);
    ASSERT_TRUE(with_null.ok() && without.ok());
    EXPECT_EQ(attention_of(with_null->layers[0]).rope.inverse_frequencies,
              attention_of(without->layers[0]).rope.inverse_frequencies);
    EXPECT_EQ(attention_of(with_null->layers[0]).rope.attention_factor, 1.0f);
  }
}

}  // namespace
}  // namespace moeflux
