// Random GGUF files read as the models that they are of.
#include "convert/random/synthetic_gguf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "backend/trace/trace_device.h"
#include "convert/random/synthetic_model.h"
#include "engine/engine.h"
#include "load/model_loader.h"
#include "model/gguf/gguf_model.h"
#include "model/mixers/attention.h"
#include "model/mixers/gated_delta.h"
#include "model/mixers/latent_attention.h"
#include "plan/model_sizes.h"
#include "tests/support/eval_last.h"
#include "tests/support/expect_error.h"
#include "tests/support/io/memory_file.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using testing::expect_error;

const GgmlType& type(std::string_view name) { return *find_ggml_type(name); }

/// A file as long as a header says, of which the rest is zeros.
class HeaderOnly final : public File {
 public:
  HeaderOnly(std::string header, uint64_t size_bytes)
      : header_("m.gguf", header), header_bytes_(header.size()), size_bytes_(size_bytes) {}
  const std::string& path() const override { return header_.path(); }
  uint64_t size_bytes() const override { return size_bytes_; }
  Status read_at(uint64_t offset, std::span<std::byte> into) const override {
    std::ranges::fill(into, std::byte{0});
    if (offset >= header_bytes_) return {};
    return header_.read_at(offset,
                           into.first(std::min<uint64_t>(into.size(), header_bytes_ - offset)));
  }

 private:
  MemoryFile header_;
  uint64_t header_bytes_;
  uint64_t size_bytes_;
};

Result<gguf::Container> open(const SyntheticGguf& made) {
  std::vector<gguf::PlannedTensor> planned;
  for (const SyntheticTensor& tensor : made.checkpoint.tensors) {
    const bool blocks = tensor.fill == SyntheticTensor::Fill::kBlocks;
    planned.push_back(
        {tensor.name, blocks ? tensor.type : &type(dtype_name(tensor.dtype)), tensor.shape});
  }
  MF_ASSIGN_OR_RETURN(gguf::Layout layout, gguf::lay_out_file(made.keys, planned));
  std::vector<std::unique_ptr<File>> files;
  files.push_back(
      std::make_unique<HeaderOnly>(layout.header, layout.header.size() + layout.data_bytes));
  return gguf::Container::read(std::move(files));
}

void expect_same_rope(const RopeSpec& found, const RopeSpec& expected) {
  EXPECT_EQ(found.rotary_dim, expected.rotary_dim);
  EXPECT_NEAR(found.attention_factor, expected.attention_factor, 1e-6);
  EXPECT_NEAR(found.softmax_mscale, expected.softmax_mscale, 1e-6);
  ASSERT_EQ(found.inverse_frequencies.size(), expected.inverse_frequencies.size());
  for (size_t i = 0; i < expected.inverse_frequencies.size(); ++i) {
    EXPECT_FLOAT_EQ(found.inverse_frequencies[i], expected.inverse_frequencies[i]);
  }
}

void expect_same_mixer(const LayerSpec& found, const LayerSpec& expected) {
  ASSERT_EQ(found.mixer->kind(), expected.mixer->kind());
  if (const auto* want = mixer_as<AttentionSpec>(expected)) {
    const auto* got = mixer_as<AttentionSpec>(found);
    EXPECT_EQ(got->num_heads, want->num_heads);
    EXPECT_EQ(got->num_kv_heads, want->num_kv_heads);
    EXPECT_EQ(got->head_dim, want->head_dim);
    EXPECT_EQ(got->window, want->window);
    EXPECT_EQ(got->qk_norm, want->qk_norm);
    EXPECT_EQ(got->qkv_bias, want->qkv_bias);
    EXPECT_EQ(got->scale, want->scale);
    expect_same_rope(got->rope, want->rope);
  }
  if (const auto* want = mixer_as<LatentAttentionSpec>(expected)) {
    const auto* got = mixer_as<LatentAttentionSpec>(found);
    EXPECT_EQ(got->num_heads, want->num_heads);
    EXPECT_EQ(got->q_lora_rank, want->q_lora_rank);
    EXPECT_EQ(got->nope_dim, want->nope_dim);
    EXPECT_EQ(got->v_dim, want->v_dim);
    EXPECT_NEAR(got->scale, want->scale, 1e-6);
    expect_same_rope(got->rope, want->rope);
  }
  if (const auto* want = mixer_as<GatedDeltaSpec>(expected)) {
    const auto* got = mixer_as<GatedDeltaSpec>(found);
    EXPECT_EQ(got->key_heads, want->key_heads);
    EXPECT_EQ(got->value_heads, want->value_heads);
    EXPECT_EQ(got->value_dim, want->value_dim);
    EXPECT_EQ(got->conv_taps, want->conv_taps);
  }
}

void expect_same_moe(const MoeSpec& found, const MoeSpec& expected) {
  EXPECT_EQ(found.num_experts, expected.num_experts);
  EXPECT_EQ(found.experts_per_token, expected.experts_per_token);
  EXPECT_EQ(found.moe_intermediate_size, expected.moe_intermediate_size);
  EXPECT_EQ(found.shared_intermediate_size, expected.shared_intermediate_size);
  EXPECT_EQ(found.shared_gate, expected.shared_gate);
  EXPECT_EQ(found.correction_bias, expected.correction_bias);
  EXPECT_EQ(found.router.score, expected.router.score);
  EXPECT_EQ(found.router.num_groups, expected.router.num_groups);
  EXPECT_EQ(found.router.groups_kept, expected.router.groups_kept);
  EXPECT_EQ(found.router.normalize, expected.router.normalize);
  EXPECT_EQ(found.router.scale, expected.router.scale);
}

class GgufShapes : public ::testing::TestWithParam<SyntheticModelShape> {};

TEST_P(GgufShapes, KeysAndNamesReadBackAsTheModel) {
  const std::string_view name = GetParam().name;
  const auto device = make_trace_device();
  const auto config = config_like(name, 0);
  ASSERT_TRUE(config.ok());
  const auto expected = assume_model(*config, *device, {});
  ASSERT_TRUE(expected.ok()) << expected.error().to_string();
  const auto made = make_synthetic_gguf(name, 0, type("Q4_K"));
  if (!gguf_architecture_of((*expected)->spec().model_type).ok()) {
    testing::expect_error(made, ErrorCode::kUnsupported, {"are not written as GGUF here"});
    return;
  }
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  auto container = open(*made);
  ASSERT_TRUE(container.ok()) << container.error().to_string();
  const auto found_config = gguf_config(*container);
  ASSERT_TRUE(found_config.ok()) << found_config.error().to_string();
  auto tensors = gguf_tensors(std::move(container).value());
  ASSERT_TRUE(tensors.ok()) << tensors.error().to_string();
  const auto found =
      load_model(*found_config, std::move(tensors).value(), *device, WeightLoading::kCheckOnly);
  ASSERT_TRUE(found.ok()) << found.error().to_string();
  const ModelSpec& got = (*found)->spec();
  const ModelSpec& want = (*expected)->spec();
  EXPECT_TRUE(got.unread_keys.empty()) << got.unread_keys.front();
  EXPECT_EQ(measure_model(**found).parameters, measure_model(**expected).parameters);
  EXPECT_FLOAT_EQ(got.rms_norm_eps, want.rms_norm_eps);
  EXPECT_EQ(got.max_position_embeddings, want.max_position_embeddings);
  EXPECT_EQ(got.tie_word_embeddings, want.tie_word_embeddings);
  ASSERT_EQ(got.num_layers(), want.num_layers());
  for (size_t i = 0; i < want.layers.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same_mixer(got.layers[i], want.layers[i]);
    expect_same_moe(got.layers[i].moe, want.layers[i].moe);
    EXPECT_EQ(got.layers[i].dense_intermediate_size, want.layers[i].dense_intermediate_size);
    if (::testing::Test::HasFailure()) break;
  }
}

std::string test_name(const ::testing::TestParamInfo<SyntheticModelShape>& info) {
  std::string name(info.param.name);
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

// Models with an index of keys have no names of GGUF here.
const std::set<std::string> kNotWritten = {"deepseek_v32", "deepseek_v4", "deepseek_v41",
                                           "glm5_next",    "glm_moe_dsa", "minimax_m3_vl",
                                           "qwen4_exp"};

// Their positions need a tensor of divisors.
const std::set<std::string> kScaledByLlama3 = {"llama-3.1-8b", "llama-3.2-3b"};

TEST(SyntheticGguf, PositionsThatKeysCannotSayAreRefused) {
  for (const std::string& name : kScaledByLlama3) {
    expect_error(make_synthetic_gguf(name, 1, type("Q8_0")), ErrorCode::kUnsupported,
                 {"llama3", "tensor"});
  }
}

std::vector<SyntheticModelShape> written_shapes() {
  std::vector<SyntheticModelShape> shapes = synthetic_model_shapes();
  std::erase_if(shapes, [](const auto& shape) {
    return kNotWritten.contains(shape.model_type) ||
           kScaledByLlama3.contains(std::string(shape.name));
  });
  return shapes;
}

INSTANTIATE_TEST_SUITE_P(All, GgufShapes, ::testing::ValuesIn(written_shapes()), test_name);

TEST(SyntheticGguf, ModelsThatHaveNoNamesThereAreRefused) {
  expect_error(make_synthetic_gguf("deepseek-v3.2", 0, type("Q4_K")), ErrorCode::kUnsupported,
               {"deepseek_v32"});
  expect_error(make_synthetic_gguf("minimax-m3", 0, type("Q4_K")), ErrorCode::kUnsupported,
               {"minimax_m3"});
}

std::map<std::string, std::string> types_of(std::string_view shape, std::string_view wanted,
                                            std::span<const GgufNamedType> named = {}) {
  const auto made = make_synthetic_gguf(shape, 0, type(wanted), named);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().to_string());
  std::map<std::string, std::string> types;
  for (const SyntheticTensor& tensor : made->checkpoint.tensors) {
    const bool blocks = tensor.fill == SyntheticTensor::Fill::kBlocks;
    types[tensor.name] = blocks ? tensor.type->name : dtype_name(tensor.dtype);
  }
  return types;
}

TEST(SyntheticGguf, TypesAreThoseOfTheQuantiser) {
  auto types = types_of("qwen3.5-35b-a3b", "Q4_K");
  EXPECT_EQ(types["output.weight"], "Q6_K");
  EXPECT_EQ(types["token_embd.weight"], "Q4_K");
  EXPECT_EQ(types["blk.0.ffn_down_exps.weight"], "Q4_K");
  EXPECT_EQ(types["blk.0.ffn_gate_inp.weight"], "F32");
  EXPECT_EQ(types["blk.0.ffn_gate_inp_shexp.weight"], "F32");
  EXPECT_EQ(types["blk.0.ssm_conv1d.weight"], "F32");
  EXPECT_EQ(types["blk.0.attn_norm.weight"], "F32");
  types = types_of("qwen3.5-35b-a3b", "IQ2_XXS");
  EXPECT_EQ(types["output.weight"], "Q5_K");
  EXPECT_EQ(types["token_embd.weight"], "Q2_K");
  types = types_of("qwen3.5-35b-a3b", "MXFP4");
  EXPECT_EQ(types["blk.0.ffn_up_exps.weight"], "MXFP4");
  EXPECT_EQ(types["blk.0.ssm_out.weight"], "Q8_0");
  types = types_of("qwen3.5-35b-a3b", "TQ2_0");
  EXPECT_EQ(types["output.weight"], "Q6_K");
  EXPECT_EQ(types["token_embd.weight"], "Q4_K");
  EXPECT_EQ(types["blk.0.ffn_up_exps.weight"], "TQ2_0");
  types = types_of("tiny", "Q2_0");  // 4 rows of 128 take as many bytes in blocks of 64 and 128
  EXPECT_EQ(types["blk.0.ssm_alpha.weight"], "F16");
  EXPECT_EQ(types["blk.0.ffn_up_exps.weight"], "Q2_0");
  types = types_of("gpt-oss-20b", "Q1_0");  // 2880 columns are whole blocks of 64
  EXPECT_EQ(types["blk.0.ffn_up_exps.weight"], "Q2_0");
  // 2880 columns are no whole blocks of 256; 128 columns of a head's keys neither.
  types = types_of("gpt-oss-20b", "Q4_K");
  EXPECT_EQ(types["blk.0.ffn_up_exps.weight"], "Q5_0");
  EXPECT_EQ(types["output.weight"], "Q8_0");
  EXPECT_EQ(types["blk.0.ffn_up_exps.bias"], "F32");
  EXPECT_EQ(types["blk.0.attn_output.weight"], "Q4_K");  // llama.cpp's name, not Ollama's
  EXPECT_EQ(types["blk.0.attn_output.bias"], "F32");
  types = types_of("deepseek-v3", "IQ4_XS");
  EXPECT_EQ(types["blk.0.attn_k_b.weight"], "IQ4_NL");
  EXPECT_EQ(types["blk.0.attn_v_b.weight"], "IQ4_XS");
  types = types_of("lfm2-8b-a1b", "Q4_0");  // whose embedding is the head
  EXPECT_EQ(types["token_embd.weight"], "Q6_K");
}

TEST(SyntheticGguf, MatricesOfANameHaveTheirOwnType) {
  const std::vector<GgufNamedType> pair = {{"blk.1.ffn_down_exps", &type("Q2_0")},
                                           {"ffn_down_exps", &type("IQ4_NL")},
                                           {"output", &type("Q8_0")}};
  auto types = types_of("qwen3.5-35b-a3b", "IQ2_XS", pair);
  EXPECT_EQ(types["blk.0.ffn_gate_exps.weight"], "IQ2_XS");
  EXPECT_EQ(types["blk.0.ffn_down_exps.weight"], "IQ4_NL");
  EXPECT_EQ(types["blk.1.ffn_down_exps.weight"], "Q2_0");
  EXPECT_EQ(types["output.weight"], "Q8_0");
  EXPECT_EQ(types["output_norm.weight"], "F32");
  EXPECT_EQ(types["blk.3.attn_output.weight"], "IQ2_XS");
}

TEST(SyntheticGguf, ATypeThatAMatrixOfItsNameCannotHaveIsRefused) {
  const auto refuse = [](std::string_view begin, std::string_view name,
                         std::initializer_list<std::string_view> pieces) {
    const std::vector<GgufNamedType> named = {{std::string(begin), &type(name)}};
    expect_error(make_synthetic_gguf("tiny", 0, type("Q4_0"), named), ErrorCode::kInvalidArgument,
                 pieces);
  };
  refuse("ffn_down_exps", "IQ2_XS", {"ffn_down_exps.weight", "IQ2_XS", "256"});
  refuse("ffn_dwon", "Q4_0", {"\"ffn_dwon\""});
  refuse("ffn_gate_inp", "Q4_0", {"\"ffn_gate_inp\""});  // a router stays F32
  refuse("ssm_alpha", "Q2_0", {"ssm_alpha.weight", "too small"});
  refuse("output", "NVFP4", {"NVFP4"});
}

TEST(SyntheticGguf, ExpertsOfSeveralTypesRun) {
  const testing::TempFolder folder;
  const std::vector<GgufNamedType> named = {{"ffn_gate_exps", &type("Q5_1")},
                                            {"ffn_down_exps", &type("Q2_0")}};
  const auto made = make_synthetic_gguf("tiny", 0, type("IQ4_NL"), named);
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  const Status written = write_synthetic_gguf(made->keys, made->checkpoint, "m.gguf",
                                              {.directory = folder.path(), .threads = 1});
  ASSERT_TRUE(written.ok()) << written.error().to_string();
  const auto device = testing::make_test_device({});
  auto engine = Engine::open(folder / "m.gguf", *device, {});
  ASSERT_TRUE(engine.ok()) << engine.error().to_string();
  const auto sequence = (*engine)->create_sequence();
  ASSERT_TRUE(sequence.ok()) << sequence.error().to_string();
  const std::vector<TokenId> tokens = {TokenId{1}, TokenId{200}, TokenId{30}};
  const auto logits = eval_last(**engine, **sequence, tokens);
  ASSERT_TRUE(logits.ok()) << logits.error().to_string();
  EXPECT_TRUE(std::ranges::all_of(*logits, [](float each) { return std::isfinite(each); }));
}

TEST(SyntheticGguf, ItsModelsRun) {
  const testing::TempFolder folder;
  for (const char* shape : {"tiny", "tiny-latent"}) {
    for (const char* wanted : {"Q4_0", "Q8_0", "MXFP4", "F16", "Q1_0", "Q2_0", "Q2_0_128"}) {
      const auto made = make_synthetic_gguf(shape, 0, type(wanted));
      ASSERT_TRUE(made.ok()) << made.error().to_string();
      const Status written = write_synthetic_gguf(made->keys, made->checkpoint, "m.gguf",
                                                  {.directory = folder.path(), .threads = 1});
      ASSERT_TRUE(written.ok()) << written.error().to_string();
      const auto device = testing::make_test_device({});
      auto engine = Engine::open(folder / "m.gguf", *device, {});
      ASSERT_TRUE(engine.ok()) << engine.error().to_string();
      const auto sequence = (*engine)->create_sequence();
      ASSERT_TRUE(sequence.ok()) << sequence.error().to_string();
      const std::vector<TokenId> tokens = {TokenId{1}, TokenId{200}, TokenId{30}};
      const auto logits = eval_last(**engine, **sequence, tokens);
      ASSERT_TRUE(logits.ok()) << logits.error().to_string();
      ASSERT_EQ(logits->size(), 512u);
      const auto [least, most] = std::ranges::minmax(*logits);
      EXPECT_TRUE(std::isfinite(least) && std::isfinite(most)) << shape << " " << wanted;
      EXPECT_LT(least, most);
    }
  }
}

/// Its kernels take parts that begin anywhere; it is never asked to compute.
class UnalignedDevice : public Device {
 public:
  std::string_view name() const override { return "unaligned"; }
  std::string_view description() const override { return "unaligned"; }
  Result<std::unique_ptr<Buffer>> allocate(size_t, MemoryKind) override {
    return Error(ErrorCode::kUnsupported, "no memory");
  }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t) override {
    return Error(ErrorCode::kUnsupported, "no encoder");
  }
  bool takes_unaligned_experts() const override { return true; }
};

/// Layer 0's experts of a file with Q4_0, as a plan for `like` sees them.
ExpertLayer planned_experts(const Device* like) {
  const auto made = make_synthetic_gguf("qwen3.5-35b-a3b", 4, type("Q4_0"));
  EXPECT_TRUE(made.ok());
  auto container = open(*made);
  EXPECT_TRUE(container.ok());
  const auto config = gguf_config(*container);
  EXPECT_TRUE(config.ok());
  auto tensors = gguf_tensors(std::move(container).value());
  EXPECT_TRUE(tensors.ok());
  const auto device = make_trace_device(like);
  const auto model =
      load_model(*config, std::move(tensors).value(), *device, WeightLoading::kCheckOnly);
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().to_string());
  return (*model)->experts.layers[0];
}

TEST(SyntheticGguf, PlansForADeviceCountTheSlotsThatItGets) {
  constexpr uint64_t kExpertBytes = 3 * 2048 * 512 / 32 * 18;
  const ExpertLayer stored = planned_experts(nullptr);
  EXPECT_EQ(stored.bytes_per_expert(), kExpertBytes);
  EXPECT_EQ(stored.arrangement, ExpertArrangement::kAsStored);
  EXPECT_EQ(stored.slot_bytes, kExpertBytes);
  const UnalignedDevice unaligned;
  const ExpertLayer in_place = planned_experts(&unaligned);
  EXPECT_EQ(in_place.bytes_per_expert(), kExpertBytes);
  EXPECT_EQ(in_place.arrangement, ExpertArrangement::kInPlace);
  EXPECT_GT(in_place.slot_bytes, kExpertBytes);
}

TEST(SyntheticGguf, WhatCannotBeDescribedIsRefused) {
  expect_error(make_synthetic_gguf("tiny", 0, type("NVFP4")), ErrorCode::kInvalidArgument,
               {"NVFP4"});
  expect_error(make_synthetic_gguf("tiny", 1, type("Q4_0")), ErrorCode::kInvalidArgument,
               {"1 layers", "attention"});
  expect_error(make_synthetic_gguf("deepseek-v3", 3, type("Q4_0")), ErrorCode::kInvalidArgument,
               {"3 layers", "experts"});
  expect_error(make_synthetic_gguf("huge", 0, type("Q4_0")), ErrorCode::kNotFound, {"huge"});
}

}  // namespace
}  // namespace moeflux
