// Models as fine-tunes and wrappers rename them: every family of the tree under other names of its
// model_type, classes and tensors, with towers and layers of prediction beside.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "backend/trace/trace_device.h"
#include "base/format.h"
#include "base/json.h"
#include "checkpoint/gguf.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_index.h"
#include "load/model_loader.h"
#include "model/config/config.h"
#include "tests/support/edited_gguf.h"
#include "tests/support/golden_families.h"
#include "tests/support/golden_file.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

using Rename = std::function<std::string(const std::string&)>;

Json config_of(const std::string& family) {
  auto config = parse_json(read_bytes(golden_folder(family) + "/config.json"), family);
  EXPECT_TRUE(config.ok());
  return config.ok() ? *config : Json::object();
}

/// The family's tensors under other names, and small ones of these names.
void write_model(const std::string& family, const TempFolder& folder, const Json& config,
                 const Rename& rename, const std::vector<std::string>& added) {
  write_bytes(folder / "config.json", config.dump());
  const auto index = TensorIndex::open(golden_folder(family));
  ASSERT_TRUE(index.ok());
  std::vector<std::vector<std::byte>> bytes;
  std::vector<safetensors::WriteEntry> entries;
  bytes.reserve(index->entries().size() + 1);
  for (const auto& [name, entry] : index->entries()) {
    bytes.emplace_back(entry.size_bytes);
    ASSERT_TRUE(read_tensor(*index, entry, bytes.back()).ok());
    entries.push_back({rename(name), entry.dtype, entry.shape, bytes.back()});
  }
  bytes.emplace_back(16);
  for (const std::string& name : added) {
    entries.push_back({name, DType::kF32, Shape{4}, bytes.back()});
  }
  ASSERT_TRUE(safetensors::write_file(folder / "model.safetensors", entries, {}).ok());
}

/// The name without the prefix that the golden's publisher has.
std::string plain(const std::string& name) {
  for (const std::string prefix :
       {"language_model.model.", "model.language_model.", "model.llm.", "thinker.model.", "model.",
        "language_model.", "thinker.", "backbone."}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}
Rename below(const std::string& prefix, const std::string& head_prefix) {
  return [=](const std::string& name) {
    const std::string own = plain(name);
    return (own.starts_with("lm_head") ? head_prefix : prefix) + own;
  };
}

const std::vector<std::string>& towers() {
  static const std::vector<std::string> kTowers = {
      "model.visual.blocks.0.attn.qkv.weight",
      "vision_tower.encoder.layers.0.norm.weight",
      "model.vision_model.embeddings.position_embedding.weight",
      "multi_modal_projector.linear_1.weight",
      "mm_projector.0.weight",
      "model.audio_tower.conv1.weight",
      "mtp.layers.0.input_layernorm.weight",
      "model.mtp_block.0.norm.weight"};
  return kTowers;
}

void expect_same_spec(const std::string& family, const TempFolder& folder) {
  const std::unique_ptr<Device> device = make_trace_device();
  const auto own = load_model(golden_folder(family), *device, WeightLoading::kCheckOnly);
  const auto renamed = load_model(folder.path(), *device, WeightLoading::kCheckOnly);
  ASSERT_TRUE(own.ok());
  ASSERT_TRUE(renamed.ok()) << family << ": " << renamed.error().to_string();
  EXPECT_EQ((*renamed)->family, (*own)->family) << family;
  EXPECT_EQ((*renamed)->dense.parameters, (*own)->dense.parameters) << family;
  EXPECT_EQ((*renamed)->spec().num_layers(), (*own)->spec().num_layers()) << family;
}

/// Families whose goldens have flat configs: the others are in wrappers as they are.
std::vector<std::string> flat_families() {
  std::vector<std::string> families = asked(golden_families());
  std::erase_if(families, [](const std::string& family) {
    const Json config = config_of(family);
    return config.contains("text_config") || config.contains("thinker_config");
  });
  return families;
}

class RenamedFamily : public ::testing::TestWithParam<std::string> {};

TEST_P(RenamedFamily, OpensInAWrapperThatSees) {
  const Json config = config_of(GetParam());
  const std::string type = config["model_type"];
  const std::string base = type.substr(0, type.rfind("_text"));
  std::vector<std::string> added = towers();
  const auto spec = read_model_spec(golden_folder(GetParam()));
  ASSERT_TRUE(spec.ok());
  for (const int64_t draft : {0, 1, 2}) {
    added.push_back(
        formatted("model.language_model.layers.{}.eh_proj.weight", spec->num_own_layers() + draft));
  }
  for (const std::string& text_type : {type, base + "_vl_text", base + "_vl"}) {
    const TempFolder folder;
    Json text = config;
    text["model_type"] = text_type;
    text["architectures"] = {"FrobnicatedForConditionalGeneration", "AnotherForCausalLM"};
    const Json outer = {{"model_type", base + "_vl"},
                        {"architectures", {"FrobnicatedForConditionalGeneration"}},
                        {"vision_config", {{"depth", 2}}},
                        {"image_token_id", 7},
                        {"text_config", text}};
    write_model(GetParam(), folder, outer, below("model.language_model.", ""), added);
    expect_same_spec(GetParam(), folder);
  }
}

TEST_P(RenamedFamily, OpensByItsClassUnderOtherPrefixes) {
  Json config = config_of(GetParam());
  // "qwen3_moe" as "Qwen3MoeForCausalLM".
  std::string name;
  bool begins = true;
  for (const char c : config["model_type"].get<std::string>()) {
    if (c != '_') name += begins ? static_cast<char>(std::toupper(c)) : c;
    begins = c == '_';
  }
  config["architectures"] = {"FrobnicatedModel", name + "ForCausalLM"};
  config["model_type"] = "frobnicated";
  for (const auto& [prefix, head] : {std::pair("language_model.model.", "language_model."),
                                     {"llm.model.", "llm."},
                                     {"model.text_model.", ""}}) {
    const TempFolder folder;
    write_model(GetParam(), folder, config, below(prefix, head), towers());
    expect_same_spec(GetParam(), folder);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RenamedFamily, ::testing::ValuesIn(flat_families()),
                         [](const auto& test) { return test.param; });

std::vector<std::string> gguf_folders() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(tests_directory() + "/golden/formats")) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("gguf-") && std::filesystem::exists(entry.path() / "model.gguf")) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// As "-MTP-GGUF" files are: a block behind the last one, which the count includes.
TEST(RenamedFamilies, OpenAsGgufFilesWithABlockThatPredicts) {
  const std::unique_ptr<Device> device = make_trace_device();
  for (const std::string& name : gguf_folders()) {
    SCOPED_TRACE(name);
    const std::string path = tests_directory() + "/golden/formats/" + name + "/model.gguf";
    const auto own = load_model(path, *device, WeightLoading::kCheckOnly);
    ASSERT_TRUE(own.ok()) << own.error().to_string();
    const auto file = gguf::Container::open(path);
    ASSERT_TRUE(file.ok());
    const std::string prefix = file->architecture() + ".";
    const gguf::Value* stored = file->keys().find(prefix + "nextn_predict_layers");
    if (stored != nullptr && std::get<int64_t>(stored->data) > 0) continue;  // which has one
    const auto blocks = std::get<int64_t>(file->keys().find(prefix + "block_count")->data);
    for (const bool is_counted : {true, false}) {
      EditedGguf edited(path);
      edited.drop(prefix + "nextn_predict_layers").drop(prefix + "block_count");
      edited.image().u32(prefix + "block_count", static_cast<uint32_t>(blocks + 1));
      if (is_counted) edited.image().u32(prefix + "nextn_predict_layers", 1);
      for (const char* tensor : {"nextn.eh_proj", "nextn.enorm", "attn_norm", "ffn_gate_exps"}) {
        edited.add_tensor(formatted("blk.{}.{}.weight", blocks, tensor));
      }
      const TempFolder folder;
      edited.write(folder / "m.gguf");
      const auto drafting = load_model(folder.path(), *device, WeightLoading::kCheckOnly);
      EXPECT_TRUE(drafting.ok()) << drafting.error().to_string();
      if (!drafting.ok()) continue;
      EXPECT_EQ((*drafting)->spec().num_layers(), (*own)->spec().num_layers());
      EXPECT_EQ((*drafting)->dense.parameters, (*own)->dense.parameters);
    }
  }
}

TEST(RenamedFamilies, GiveTheSameBitsAndSayWhatTheyLeaveOut) {
  const std::string family = "qwen3_5_moe_text";
  const TempFolder folder;
  Json config = config_of(family);
  config["model_type"] = "ornith";
  config["architectures"] = {"Qwen3_5MoeForConditionalGeneration"};
  write_model(family, folder, {{"model_type", "ornith_vl"}, {"llm_config", config}},
              below("language_model.model.", "language_model."),
              {"model.visual.blocks.0.norm.weight", "mtp.fc.weight",
               "language_model.model.layers.4.eh_proj.weight"});
  const auto lines = opening_remarks(folder.path());
  ASSERT_TRUE(lines.ok()) << lines.error().to_string();
  ASSERT_EQ(lines->size(), 2u);
  EXPECT_NE(lines->front().find("model_type ornith is read as qwen3_5_moe"), std::string::npos)
      << lines->front();
  EXPECT_TRUE(lines->back().ends_with("left out: language_model.model.layers.4, model.visual, mtp"))
      << lines->back();
  const std::vector<TokenId> tokens = {3, 1, 4, 1, 5};
  const RunOutput own = run_model(golden_folder(family), tokens, {.device = "reference"});
  const RunOutput renamed = run_model(folder.path(), tokens, {.device = "reference"});
  ASSERT_FALSE(own.logits.empty());
  EXPECT_EQ(renamed.logits, own.logits);
}

// Tensors in a layer of the text model, and layers far behind its last one, are no other parts.
TEST(RenamedFamilies, RefuseTensorsOfTheTextModelThatNobodyUses) {
  for (const std::string name : {"model.layers.0.self_attn.vision_proj.weight",
                                 "model.layers.40.input_layernorm.weight", "model.extra.weight"}) {
    const TempFolder folder;
    write_model("qwen3_moe", folder, config_of("qwen3_moe"),
                [](const std::string& own) { return own; }, {name});
    const std::unique_ptr<Device> device = make_trace_device();
    const auto loaded = load_model(folder.path(), *device, WeightLoading::kCheckOnly);
    ASSERT_FALSE(loaded.ok()) << name;
    EXPECT_NE(loaded.error().to_string().find(name), std::string::npos);
  }
}

}  // namespace
}  // namespace moeflux::testing
