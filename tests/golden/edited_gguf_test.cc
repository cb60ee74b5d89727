// GGUF files as other programs write them, made here from those of the tree: other names and keys,
// parts of other models in the same file, another alignment. The numbers stay those of the
// references.
#include "tests/support/edited_gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/format.h"
#include "checkpoint/tensor_index.h"
#include "engine/engine.h"
#include "load/model_loader.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_file.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

constexpr size_t kEditedTokens = 12;

std::string tree_folder(const std::string& name) {
  return tests_directory() + "/golden/formats/" + name;
}
std::string file_of(const std::string& name) { return tree_folder(name) + "/model.gguf"; }

std::vector<float> logits_of(const std::string& path, std::span<const TokenId> tokens) {
  return run_model(path, tokens, {.device = "reference"}).logits;
}

/// The file gives the bits of the one that it was made from.
void expect_same_bits(const std::string& name, EditedGguf& edited) {
  std::vector<TokenId> tokens =
      read_golden(tree_folder(name) + "/golden.safetensors")["tokens"].ints;
  ASSERT_GE(tokens.size(), kEditedTokens);
  tokens.resize(kEditedTokens);
  const TempFolder folder;
  edited.write(folder / "m.gguf");
  const std::vector<float> logits = logits_of(folder / "m.gguf", tokens);
  ASSERT_FALSE(logits.empty());
  EXPECT_EQ(logits, logits_of(tree_folder(name), tokens));
}

std::string replaced(std::string text, std::string_view part, std::string_view other) {
  const size_t at = text.find(part);
  if (at != std::string::npos) text.replace(at, part.size(), other);
  return text;
}

constexpr uint32_t kArray = 9;

std::string array_of(std::initializer_list<uint32_t> values) {
  GgufBytes bytes;
  bytes.number<uint32_t>(4).number<uint64_t>(values.size());
  for (const uint32_t value : values) bytes.number(value);
  return bytes.text();
}

TEST(EditedGguf, OllamasHybridQwenIsRead) {
  EditedGguf edited(file_of("gguf-qwen3_next"));
  edited.rename([](const std::string& name) { return replaced(name, ".ssm_dt.bias", ".ssm_dt"); });
  edited.drop("qwen3next.attention.head_count_kv").drop("qwen3next.expert_weights_norm");
  edited.image()
      .key("qwen3next.attention.head_count_kv", kArray, array_of({0, 0, 0, 2}))
      .key("qwen3next.rope.dimension_sections", kArray, array_of({2, 1, 1}))
      .key("qwen3next.mrope_sections", kArray, array_of({2, 1, 1}))
      .key("qwen3next.norm_top_k_prob", 7, "\x01")
      .u32("qwen3next.vision.block_count", 27)
      .u32("qwen3next.image_token_id", 7);
  expect_same_bits("gguf-qwen3_next", edited);
}

TEST(EditedGguf, EncodersAndDraftBlocksInTheFileAreLeftAloneAndTold) {
  EditedGguf edited(file_of("gguf-qwen3_next"));
  edited.add_tensor("v.blk.0.attn_q.weight").add_tensor("mm.0.weight");
  edited.add_tensor("mm.a.input_projection.weight").add_tensor("a.blk.0.attn_q.weight");
  edited.add_tensor("mtp.fc.weight").add_tensor("mtp.layers.0.mlp.gate.weight");
  const TempFolder folder;
  edited.write(folder / "m.gguf");
  write_bytes(folder / "mmproj-F16.gguf", "");
  const auto lines = opening_remarks(folder.path());
  ASSERT_TRUE(lines.ok()) << lines.error().to_string();
  ASSERT_EQ(lines->size(), 1u);
  EXPECT_EQ(lines->front(), folder / "m.gguf" +
                                ": tensors that are not of the text model are left alone: 2 of a "
                                "picture encoder, 2 of a sound encoder, 2 of draft blocks; "
                                "mmproj-F16.gguf beside it is not used: pictures and sound are not "
                                "read");
  expect_same_bits("gguf-qwen3_next", edited);
}

// Tensors of a block that the file counts and does not call predicting.
TEST(EditedGguf, ABlockWithTensorsOfPredictionIsNoLayer) {
  EditedGguf edited(file_of("gguf-qwen3_next"));
  edited.drop("qwen3next.block_count");
  edited.image().u32("qwen3next.block_count", 5);
  edited.add_tensor("blk.4.nextn.eh_proj.weight").add_tensor("blk.4.attn_norm.weight");
  expect_same_bits("gguf-qwen3_next", edited);
}

/// Numbers that follow no pattern, around 0 or 1.
std::vector<float> numbers_of(uint64_t count, uint32_t seed, float around = 0.0f) {
  std::vector<float> numbers;
  for (uint64_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    numbers.push_back(around + (static_cast<float>(seed >> 8) / 16777216.0f - 0.5f) / 4.0f);
  }
  return numbers;
}

/// DeepSeek-V4 with a block that predicts, whose halves of the combining matrix are one or apart.
std::vector<float> draft_logits_of_v4(bool is_apart) {
  constexpr uint64_t kHidden = 64;
  constexpr uint64_t kStreams = 4;
  constexpr uint64_t kExperts = 8;
  EditedGguf edited(file_of("gguf-deepseek_v4"));
  edited.drop("deepseek4.block_count").drop("deepseek4.nextn_predict_layers");
  edited.image().u32("deepseek4.block_count", 4).u32("deepseek4.nextn_predict_layers", 1);
  edited.copy_block("blk.0.", "blk.3.", "tid2eid");
  const auto add = [&](const std::string& name, std::vector<uint64_t> extents, uint32_t seed,
                       float around = 0.0f) {
    uint64_t count = 1;
    for (const uint64_t extent : extents) count *= extent;
    edited.add_floats("blk.3." + name, std::move(extents), numbers_of(count, seed, around));
  };
  add("exp_probs_b.bias", {kExperts}, 1);
  add("nextn.enorm.weight", {kHidden}, 2, 1.0f);
  add("nextn.hnorm.weight", {kHidden}, 3, 1.0f);
  add("nextn.shared_head_norm.weight", {kHidden}, 4, 1.0f);
  add("nextn.hc_head_fn.weight", {kStreams * kHidden, kStreams}, 5);
  add("nextn.hc_head_base.weight", {kStreams}, 6);
  add("nextn.hc_head_scale.weight", {1}, 7, 1.0f);
  const std::vector<float> e = numbers_of(kHidden * kHidden, 8);
  const std::vector<float> h = numbers_of(kHidden * kHidden, 9);
  if (is_apart) {
    edited.add_floats("blk.3.nextn.e_proj.weight", {kHidden, kHidden}, e);
    edited.add_floats("blk.3.nextn.h_proj.weight", {kHidden, kHidden}, h);
  } else {
    std::vector<float> rows;
    for (size_t row = 0; row < kHidden; ++row) {
      const auto begin = static_cast<ptrdiff_t>(row * kHidden);
      rows.insert(rows.end(), e.begin() + begin, e.begin() + begin + kHidden);
      rows.insert(rows.end(), h.begin() + begin, h.begin() + begin + kHidden);
    }
    edited.add_floats("blk.3.nextn.eh_proj.weight", {2 * kHidden, kHidden}, rows);
  }
  const TempFolder folder;
  edited.write(folder / "m.gguf");
  const auto device = make_test_device({.device = "reference"});
  const auto engine =
      Engine::open(folder / "m.gguf", *device, {.context_length = 32, .draft_layer = true});
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
  if (!engine.ok()) return {};
  auto sequence = (*engine)->create_sequence();
  EXPECT_TRUE(sequence.ok());
  const std::vector<TokenId> tokens = {1, 8, 15, 22, 29, 5, 12};
  EXPECT_TRUE((*engine)->eval(**sequence, tokens, {.logits = LogitsMode::kNone}, {}).ok());
  std::vector<float> logits;
  const auto drafts = (*engine)->draft(
      **sequence, {.token = 3, .count = 2, .sink = [&](int64_t, std::span<const float> row) {
                     logits.insert(logits.end(), row.begin(), row.end());
                     return Status();
                   }});
  EXPECT_TRUE(drafts.ok() && drafts->size() == 2u);
  return logits;
}

TEST(EditedGguf, DraftBlocksOfSeveralStreamsMayCombineByOneMatrixOrTwo) {
  const std::vector<float> apart = draft_logits_of_v4(true);
  const std::vector<float> together = draft_logits_of_v4(false);
  ASSERT_FALSE(apart.empty());
  ASSERT_EQ(apart.size(), together.size());
  EXPECT_GT(max_abs_difference(apart, std::vector<float>(apart.size())), 0.1);
  EXPECT_LE(max_abs_difference(apart, together), 1e-4);
}

TEST(EditedGguf, OllamasGptOssIsRead) {
  EditedGguf edited(file_of("gguf-mxfp4-gpt_oss"));
  edited.call_architecture("gpt-oss", "gptoss");
  edited.drop("gptoss.expert_feed_forward_length").drop("gptoss.rope.scaling.type");
  edited.rename([](std::string name) {
    name = replaced(std::move(name), ".attn_output.", ".attn_out.");
    name = replaced(std::move(name), ".attn_sinks.weight", ".attn_sinks");
    return replaced(std::move(name), ".post_attention_norm.", ".ffn_norm.");
  });
  expect_same_bits("gguf-mxfp4-gpt_oss", edited);
}

TEST(EditedGguf, OllamasNemotronIsRead) {
  for (const char* name : {"nemotron_h_moe", "nemotron_h_omni"}) {
    EditedGguf edited(file_of("gguf-nemotron_h_latent"));
    edited.call_architecture("nemotron_h_moe", name);
    edited.drop(std::string(name) + ".moe_latent_size");
    edited.rename([](std::string tensor) {
      tensor = replaced(std::move(tensor), ".ffn_latent_down.", ".ffn_latent_in.");
      return replaced(std::move(tensor), ".ffn_latent_up.", ".ffn_latent_out.");
    });
    edited.add_tensor("mtp.layers.0.mixer.experts.0.up_proj.weight");
    expect_same_bits("gguf-nemotron_h_latent", edited);
  }
}

TEST(EditedGguf, OllamasGemmaAndLagunaAreRead) {
  EditedGguf gemma(file_of("gguf-gemma4_text"));
  gemma.rename([](const std::string& name) {
    return replaced(name, ".ffn_down_exps.scale", ".ffn_gate_inp.per_expert_scale");
  });
  gemma.add_tensor("model.vision_tower.std_bias");
  expect_same_bits("gguf-gemma4_text", gemma);
  EditedGguf laguna(file_of("gguf-laguna"));
  laguna.rename([](const std::string& name) { return replaced(name, ".attn_gate.", ".attn_g."); });
  for (std::string& key : laguna.image().keys) {
    uint64_t length = 0;
    std::memcpy(&length, key.data(), sizeof(length));
    std::string name = key.substr(sizeof(length), length);
    for (const auto& [usual, other] :
         {std::pair("rope.freq_base_swa", "rope.swa.freq_base"),
          std::pair("rope.dimension_count_swa", "rope.swa.dimension_count"),
          std::pair("yarn_beta_fast", "beta_fast"), std::pair("yarn_beta_slow", "beta_slow")}) {
      name = replaced(std::move(name), usual, other);
    }
    key = GgufBytes().string(name).raw(std::string_view(key).substr(8 + length)).text();
  }
  laguna.image().u32("laguna.attention.gating_type", 1).u32("laguna.decoder_sparse_step", 1);
  expect_same_bits("gguf-laguna", laguna);
}

// As Mixtral's first files have them.
TEST(EditedGguf, ExpertsMayBeATensorEach) {
  EditedGguf edited(file_of("gguf-mixtral"));
  edited.split_experts();
  edited.drop("llama.expert_feed_forward_length");
  expect_same_bits("gguf-mixtral", edited);
}

EditedGguf yarn_file() {
  EditedGguf edited(file_of("gguf-qwen3_moe"));
  edited.image()
      .text("qwen3moe.rope.scaling.type", "yarn")
      .f32("qwen3moe.rope.scaling.factor", 4.0f)
      .u32("qwen3moe.rope.scaling.original_context_length", 64);
  return edited;
}

TEST(EditedGguf, AttentionFactorsMultiplyRotations) {
  auto golden = read_golden(tree_folder("yarn_attn_factor.safetensors"));
  const std::vector<TokenId> tokens = golden["tokens"].ints;
  const TempFolder folder;
  EditedGguf edited = yarn_file();
  edited.image().f32("qwen3moe.rope.scaling.attn_factor", 0.5f);
  edited.write(folder / "m.gguf");
  const RunOutput run = run_model(folder.path(), tokens, {.device = "reference"});
  ASSERT_FALSE(run.logits.empty());
  ASSERT_EQ(golden["positions"].ints.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t position = golden["positions"].ints[static_cast<size_t>(i)];
    EXPECT_LE(max_abs_difference(run.row(position), golden["logits"].row(i)), 1e-4)
        << "position " << position;
  }
  // Without it the numbers are others, and keys that say what holds anyhow change no bit.
  EditedGguf plain = yarn_file();
  plain.write(folder / "m.gguf");
  const std::vector<float> usual = logits_of(folder.path(), tokens);
  EXPECT_GT(max_abs_difference(run.logits, usual), 0.01);
  plain.image()
      .f32("qwen3moe.rope.scaling.attn_factor", 1.0f)
      .f32("qwen3moe.rope.scaling.yarn_attn_factor", 1.0f + 0.1f * std::log(4.0f))
      .f32("qwen3moe.rope.scaling.yarn_ext_factor", -1.0f)
      .f32("qwen3moe.rope.scaling.yarn_beta_fast", 32.0f)
      .key("qwen3moe.rope.scaling.finetuned", 7, "\x01");
  plain.write(folder / "m.gguf");
  EXPECT_EQ(logits_of(folder.path(), tokens), usual);
}

TEST(EditedGguf, RangesOfYarnChangeTheNumbers) {
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  const TempFolder folder;
  yarn_file().write(folder / "m.gguf");
  const std::vector<float> usual = logits_of(folder.path(), tokens);
  // The ramp is from 0 to 3 of 8 frequencies; with the first it begins at 2, with the other it ends
  // at 1.
  for (const auto& [key, turns] :
       {std::pair("yarn_beta_fast", 1.0f), std::pair("yarn_beta_slow", 4.0f)}) {
    EditedGguf edited = yarn_file();
    edited.image().f32(std::string("qwen3moe.rope.scaling.") + key, turns);
    edited.write(folder / "m.gguf");
    EXPECT_NE(logits_of(folder.path(), tokens), usual) << key;
  }
}

// JSON, which keys become on their way to a spec, has no such numbers.
TEST(EditedGguf, NumbersThatAreNotFiniteAreNamedWithTheirKey) {
  const TempFolder folder;
  const auto expect_named = [&](EditedGguf& edited, const std::string& words) {
    edited.write(folder / "m.gguf");
    expect_error(read_model_spec(folder / "m.gguf"), ErrorCode::kCorruption,
                 {"m.gguf: ", words + ", expected a finite number"});
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const char* key : {"attention.layer_norm_rms_epsilon", "rope.freq_base"}) {
    const std::string full = std::string("qwen3moe.") + key;
    for (const auto& [number, shown] :
         {std::pair(kNan, "nan"), {kInfinity, "inf"}, {-kInfinity, "-inf"}}) {
      EditedGguf edited(file_of("gguf-qwen3_moe"));
      edited.drop(full).image().f32(full, number);
      expect_named(edited, "key " + full + " is " + shown);
    }
  }
}

/// Gives the file the biases of a golden of options.
void add_biases(EditedGguf& edited, const std::string& path) {
  const TempFolder folder;
  write_bytes(folder / "model.safetensors", read_bytes(path));
  const auto index = TensorIndex::open(folder.path());
  ASSERT_TRUE(index.ok());
  for (const auto& [name, entry] : index->entries()) {
    std::vector<std::byte> bytes(entry.size_bytes);
    ASSERT_TRUE(read_tensor(*index, entry, bytes).ok());
    std::vector<float> numbers(static_cast<size_t>(entry.shape[0]));
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = load_float(bytes.data(), static_cast<int64_t>(i), entry.dtype);
    }
    std::string stored = replaced(name, "model.layers.", "blk.");
    stored = replaced(std::move(stored), ".self_attn.o_proj.", ".attn_output.");
    for (const std::string part : {"q", "k", "v"}) {
      stored = replaced(std::move(stored), ".self_attn." + part + "_proj.", ".attn_" + part + ".");
    }
    edited.add_floats(stored, {numbers.size()}, numbers);
  }
}

TEST(EditedGguf, BiasesOfQueriesKeysAndValuesNeedNoneOfTheOutput) {
  const std::string option = tests_directory() + "/golden/options/hy_v3_bias";
  const auto logits = [&](bool has_zeros) {
    EditedGguf edited(file_of("gguf-hy_v3"));
    add_biases(edited, option + ".tensors");
    const auto is_output = [](const std::string& name) {
      return name.ends_with("attn_output.bias");
    };
    edited.rename([&](const std::string& name) { return is_output(name) ? "" : name; });
    for (int block = 0; has_zeros && block < 4; ++block) {
      edited.add_floats(formatted("blk.{}.attn_output.bias", block), {64}, std::vector<float>(64));
    }
    const TempFolder folder;
    edited.write(folder / "m.gguf");
    return logits_of(folder / "m.gguf", read_golden(option + ".safetensors")["tokens"].ints);
  };
  const std::vector<float> without = logits(false);
  ASSERT_FALSE(without.empty());
  EXPECT_EQ(without, logits(true));
  EXPECT_NE(without, logits_of(tree_folder("gguf-hy_v3"),
                               read_golden(option + ".safetensors")["tokens"].ints));
}

// Each tensor lies elsewhere than at the usual alignment, and so does the beginning of the data.
TEST(EditedGguf, DataBeginsWhereItsAlignmentSays) {
  for (const uint32_t alignment : {8u, 64u, 128u, 4096u, 65536u}) {
    SCOPED_TRACE(alignment);
    EditedGguf edited(file_of("gguf-qwen3_moe"));
    edited.align(alignment);
    expect_same_bits("gguf-qwen3_moe", edited);
  }
}

TEST(EditedGguf, EachPartOfASplitHasItsOwnAlignment) {
  std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6};
  const TempFolder folder;
  for (int part = 1; part <= 3; ++part) {
    const std::string name = "model-0000" + std::to_string(part) + "-of-00003.gguf";
    EditedGguf edited(tree_folder("gguf-split") + "/" + name, part - 1);
    edited.align(part == 2 ? 4096 : 128);
    edited.write(folder / name);
  }
  const std::vector<float> logits = logits_of(folder.path(), tokens);
  ASSERT_FALSE(logits.empty());
  EXPECT_EQ(logits, logits_of(tree_folder("gguf-split"), tokens));
  // A path to any part means the model.
  EXPECT_EQ(logits_of(folder / "model-00002-of-00003.gguf", tokens), logits);
}

}  // namespace
}  // namespace moeflux::testing
