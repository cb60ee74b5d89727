#include "tests/support/golden_families.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/config/config.h"
#include "model/family/family.h"
#include "tests/support/golden_file.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {

const std::map<std::string, std::string>& other_spellings() {
  static const std::map<std::string, std::string> kSpellings = {
      {"deepseek_v41_text", "deepseek_v41"},    // the same keys and names
      {"dots3_note", "dots3_note_text"},        // text_config of a model that also sees
      {"gemma3", "gemma3_text"},                // text_config of a model that also sees
      {"gemma4", "gemma4_text"},                // text_config of a model that also sees
      {"glm5_next", "glm5_next_text"},          // text_config of a model that also sees
      {"inkling_mm_model", "inkling_text"},     // text_config of a model that also sees and hears
      {"inkling2", "inkling2_text"},            // text_config of a model that also sees
      {"inkling2_loop", "inkling2_loop_text"},  // text_config of a model that also sees
      {"kimi_k2", "deepseek_v3"},               // the same keys and names
      {"kimi_k25", "deepseek_v3"},              // the same as text_config of a model that also sees
      {"llama4", "llama4_text"},                // text_config of a model that also sees
      {"muse_glimmer", "muse_glimmer_text"},    // text_config of a model that also sees
      {"muse_spark", "muse_spark_text"},        // text_config of a model that also sees
      {"minimax_m3", "minimax_m3_vl_text"},     // the same keys and names
      {"mistral_large4", "mistral_large4_text"},  // text_config of a model that also sees
      {"minimax_m3_text", "minimax_m3_vl_text"},  // the same
      {"minimax_m3_vl", "minimax_m3_vl_text"},    // text_config of a model that also sees
      {"qwen3_5_moe", "qwen3_5_moe_text"},        // text_config of a model that also sees
      {"qwen3_5", "qwen3_5_text"},                // text_config of a model that also sees
      {"qwen3_omni_moe", "qwen3_omni_moe_text"},
      {"qwen4_exp", "qwen4_exp_text"},  // text_config of a model that also sees
      {"qwen3_vl_moe", "qwen3_vl_moe_text"},
      {"step3p7", "step3p5"},
  };
  return kSpellings;
}

const std::map<std::string, std::string>& golden_variants() {
  static const std::map<std::string, std::string> kVariants = {
      {"deepseek_v4_saved", "deepseek_v4"},   // names as transformers saves them
      {"gemma4_text_dense", "gemma4_text"},   // without experts
      {"gemma4_text_e", "gemma4_text"},       // with embeddings for layers, and shared keys
      {"phi4", "phi3"},                       // positions that are not scaled
      {"qwen3_embedding", "qwen3"},           // names without "model.", and no head
      {"nemotron_h_latent", "nemotron_h"},    // experts that see fewer numbers
      {"glm_moe_dsa_shared", "glm_moe_dsa"},  // layers that share the choice of keys
  };
  return kVariants;
}

std::vector<std::string> golden_families() {
  std::vector<std::string> names;
  for (const auto& [folder, type] : golden_variants()) names.push_back(folder);
  for (const Family* family : families()) {
    for (const std::string_view type : family->model_types) {
      if (!other_spellings().contains(std::string(type))) names.emplace_back(type);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool may_be_asked(std::string_view part) {
  const std::string filter = GTEST_FLAG_GET(filter);
  return filter.find_first_of("*?:-") != std::string::npos ||
         filter.find(part) != std::string::npos;
}

std::vector<std::string> asked(std::vector<std::string> families) {
  std::erase_if(families, [](const std::string& family) { return !may_be_asked(family); });
  return families;
}

std::vector<std::string> families_of_several_streams() {
  return {"deepseek_v4", "deepseek_v4_saved", "deepseek_v41", "glm5_next_text",
          "hy_v4",       "qwen4_exp_text"};
}

std::vector<std::string> families_of_one_stream() {
  std::vector<std::string> families = golden_families();
  for (const std::string& of_several : families_of_several_streams()) {
    std::erase(families, of_several);
  }
  return families;
}

bool is_dense(const std::string& family) {
  auto config = Config::parse(read_bytes(golden_folder(family) + "/config.json"));
  if (!config.ok()) return false;
  const auto reader = find_family(config->model_type());
  if (!reader.ok()) return false;
  const Result<ModelSpec> spec = (*reader)->read_spec(*config);
  return spec.ok() && last_moe(*spec).num_experts == 0;
}

std::vector<std::string> dense_families(std::vector<std::string> families) {
  std::erase_if(families, [](const std::string& family) { return !is_dense(family); });
  return families;
}

std::vector<std::string> moe_families(std::vector<std::string> families) {
  std::erase_if(families, is_dense);
  return families;
}

std::vector<std::string> mtp_families() {
  return {"deepseek_v3", "deepseek_v4", "glm4_moe",   "glm_moe_dsa", "mimo_v2_flash",
          "qwen3_5",     "qwen3_5_moe", "qwen3_next", "qwen4_exp"};
}

std::string golden_folder(const std::string& family) {
  return tests_directory() + "/golden/models/" + family;
}

}  // namespace moeflux::testing
