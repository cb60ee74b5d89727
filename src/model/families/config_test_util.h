// Configs for tests of families: a public or a golden model's with one key changed, as its family
// reads it.
#pragma once

#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/config/config.h"
#include "model/family/family.h"
#include "model/family/public_models.h"
#include "model/mixers/attention.h"
#include "tests/support/golden_file.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {

inline constexpr auto kUnsupported = ErrorCode::kUnsupported;
inline constexpr auto kInvalid = ErrorCode::kInvalidArgument;

/// A name in kebab case is a public model's, any other a golden folder's.
inline Json config_of(const std::string& model) {
  const bool is_public = model.find('-') != std::string::npos;
  const auto found = is_public ? find_public_model(model) : PublicModel{};
  EXPECT_TRUE(found.ok()) << model;
  const std::string path = tests_directory() + "/golden/models/" + model + "/config.json";
  const auto json =
      parse_json(is_public ? std::string(found->config_json) : read_bytes(path), model);
  EXPECT_TRUE(json.ok());
  return json.ok() ? *json : Json::object();
}

/// One of every family; those in kebab case are public configs, the others tiny ones.
inline constexpr const char* kEveryFamily[] = {"qwen3.5-35b-a3b",
                                               "qwen3-next-80b-a3b",
                                               "qwen3-30b-a3b",
                                               "qwen2_moe",
                                               "deepseek-v3",
                                               "kimi-k2",
                                               "kimi-k2.5",
                                               "glm-4.5",
                                               "glm-4.7-flash",
                                               "minimax-m2",
                                               "mixtral-8x7b",
                                               "olmoe-1b-7b",
                                               "deepseek-v2",
                                               "gpt-oss-20b",
                                               "gemma4_text",
                                               "mimo_v2_flash",
                                               "lfm2-8b-a1b",
                                               "deepseek-v3.2",
                                               "glm-5",
                                               "glm-5.2",
                                               "minimax-m3",
                                               "glm-5.3-flash",
                                               "qwen3.8-flash-next",
                                               "deepseek-v4-flash",
                                               "hy_v3",
                                               "dots1",
                                               "solar_open",
                                               "exaone_moe",
                                               "afmoe",
                                               "qwen3_omni_moe_text",
                                               "qwen3_vl_moe_text",
                                               "laguna",
                                               "step3p5",
                                               "llama4_text",
                                               "cohere2_moe",
                                               "ernie4_5_moe",
                                               "mistral4",
                                               "kimi-linear-48b-a3b",
                                               "kimi-k3",
                                               "ling-3.0-tiny",
                                               "granite-4.0-h-small",
                                               "nemotron-3-nano-30b-a3b",
                                               "qwen3",
                                               "qwen2",
                                               "qwen3_5_text",
                                               "llama",
                                               "mistral",
                                               "ministral3",
                                               "smollm3",
                                               "granite",
                                               "granite_swa",
                                               "gemma3_text",
                                               "olmo2",
                                               "olmo3",
                                               "muse_glimmer_text",
                                               "phi3",
                                               "phi4",
                                               "axk1",
                                               "sarvam_mla",
                                               "axk2",
                                               "hy_v4",
                                               "mistral_large4_text",
                                               "dots3_note_text",
                                               "gemma4_text_dense",
                                               "gemma4_text_e",
                                               "mellum",
                                               "sarvam_moe",
                                               "flint",
                                               "kolibri1",
                                               "granitemoe_swa",
                                               "beam",
                                               "muse_spark_text",
                                               "lara_mini",
                                               "inkling_text",
                                               "inkling2_text",
                                               "inkling2_loop_text",
                                               "kimi_k3",
                                               "deepseek_v41",
                                               "zaya"};
inline std::vector<std::string> every_family() {
  return {std::begin(kEveryFamily), std::end(kEveryFamily)};
}

/// The object that holds the text model's keys.
inline Json& text_of(Json& json) {
  Json& thinker = json.contains("thinker_config") ? json["thinker_config"] : json;
  return thinker.contains("text_config") ? thinker["text_config"] : thinker;
}

inline Result<ModelSpec> read(const Json& json) {
  auto config = Config::parse(json.dump());
  if (!config.ok()) return config.error();
  const auto family = find_family(config->model_type());
  if (!family.ok()) return family.error();
  return (*family)->read_spec(*config);
}

inline Result<ModelSpec> read_with(const std::string& model, const std::string& key,
                                   const Json& value) {
  Json json = config_of(model);
  text_of(json)[key] = value;
  return read(json);
}

/// The attention of a layer that has it.
inline const AttentionSpec& attention_of(const LayerSpec& layer) {
  return *mixer_as<AttentionSpec>(layer);
}

}  // namespace moeflux::testing
