#include "tests/support/tiny_model.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <vector>

#include "base/format.h"
#include "checkpoint/safetensors.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

constexpr int64_t kHidden = 32;
constexpr int64_t kHeadDim = 16;
constexpr int64_t kExperts = 4;
constexpr int64_t kIntermediate = 32;
constexpr int64_t kGroup = 32;
constexpr int64_t kConvChannels = 64;  // one key head and two value heads of 16
constexpr int64_t kConvTaps = 4;

constexpr std::string_view kConfig = R"({
  "model_type": "qwen3_5_moe_text", "hidden_size": 32, "vocab_size": 64, "num_hidden_layers": 2,
  "layer_types": ["linear_attention", "full_attention"], "max_position_embeddings": 1024,
  "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "hidden_act": "silu",
  "attention_bias": false, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
  "linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 16,
  "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "num_experts": 4,
  "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32
})";

// Numbers that follow from the canonical name alone.
class Numbers {
 public:
  explicit Numbers(std::string_view name) {
    for (const char c : name) state_ = (state_ ^ static_cast<uint8_t>(c)) * 1099511628211u;
  }
  uint32_t word() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 32);
  }
  /// A multiple of scale / 64 between -scale and scale: sums with 1 are exact.
  float number(float scale) {
    return static_cast<float>(static_cast<int>(word() % 129) - 64) / 64.0f * scale;
  }

 private:
  uint64_t state_ = 14695981039346656037u;
};

template <typename T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

TinyTensor floats(std::string_view name, const Shape& shape, float scale, float add) {
  TinyTensor tensor{DType::kF32, shape, {}};
  Numbers numbers(name);
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    append(tensor.bytes, numbers.number(scale) + add);
  }
  return tensor;
}

// weight, then scales and biases when quantised, with the endings of their names.
using Parts = std::vector<std::pair<std::string, TinyTensor>>;

Parts matrix(std::string_view name, int64_t rows, int64_t cols, int bits) {
  const float scale = 0.25f;
  if (bits == 0) return {{".weight", floats(name, {rows, cols}, scale, 0.0f)}};
  TinyTensor codes{DType::kU32, {rows, cols * bits / 32}, {}};
  Numbers numbers(name);
  for (int64_t i = 0; i < codes.shape.num_elements(); ++i) append(codes.bytes, numbers.word());
  const Shape groups{rows, cols / kGroup};
  const auto levels = static_cast<float>(1 << bits);
  TinyTensor scales{DType::kF32, groups, {}};
  TinyTensor biases{DType::kF32, groups, {}};
  for (int64_t i = 0; i < groups.num_elements(); ++i) {
    append(scales.bytes, 2.0f * scale / levels);
    append(biases.bytes, -scale);
  }
  return {{".weight", codes}, {".scales", scales}, {".biases", biases}};
}

// One tensor after another along a new or the first dimension.
TinyTensor join(const std::vector<TinyTensor>& tensors, const Shape& shape) {
  TinyTensor all{tensors.front().dtype, shape, {}};
  for (const TinyTensor& tensor : tensors) all.bytes += tensor.bytes;
  return all;
}

class Builder {
 public:
  explicit Builder(const TinyOptions& options) : options_(options) {}

  TinyModel build() {
    model_.config = *parse_json(kConfig, "tiny config");
    if (options_.bits > 0) {
      model_.config["quantization"] = {{"bits", options_.bits}, {"group_size", kGroup}};
    }
    add_matrix("embed_tokens", TinyModel::kVocab, kHidden);
    add_linear_attention("layers.0.linear_attn.");
    add_attention("layers.1.self_attn.");
    for (const std::string layer : {"layers.0.", "layers.1."}) add_layer(layer);
    add_norm("norm.weight", kHidden);
    const std::string head = options_.hugging_face ? "lm_head" : "language_model.lm_head";
    for (auto& [ending, tensor] : matrix("lm_head", TinyModel::kVocab, kHidden, options_.bits)) {
      model_.tensors[head + ending] = std::move(tensor);
    }
    return std::move(model_);
  }

 private:
  void add(const std::string& name, TinyTensor tensor) {
    model_.tensors[options_.prefix + name] = std::move(tensor);
  }
  void add_matrix(const std::string& name, int64_t rows, int64_t cols) {
    for (auto& [ending, tensor] : matrix(name, rows, cols, options_.bits)) {
      add(name + ending, std::move(tensor));
    }
  }
  void add_norm(const std::string& name, int64_t width) {
    add(name, floats(name, {width}, 0.5f, options_.hugging_face ? 0.0f : 1.0f));
  }

  void add_linear_attention(const std::string& p) {
    add_matrix(p + "in_proj_qkv", kConvChannels, kHidden);
    add_matrix(p + "in_proj_z", 2 * kHeadDim, kHidden);
    add_matrix(p + "in_proj_b", 2, kHidden);
    add_matrix(p + "in_proj_a", 2, kHidden);
    add_matrix(p + "out_proj", kHidden, 2 * kHeadDim);
    const Shape conv = options_.hugging_face ? Shape{kConvChannels, 1, kConvTaps}
                                             : Shape{kConvChannels, kConvTaps, 1};
    add(p + "conv1d.weight", floats(p + "conv1d", conv, 0.5f, 0.0f));
    add(p + "A_log", floats(p + "A_log", {2}, 1.0f, 0.0f));
    add(p + "dt_bias", floats(p + "dt_bias", {2}, 1.0f, 0.0f));
    add(p + "norm.weight", floats(p + "norm", {kHeadDim}, 0.5f, 1.0f));  // never zero-centred
  }

  void add_attention(const std::string& p) {
    add_matrix(p + "q_proj", 4 * kHeadDim, kHidden);
    add_matrix(p + "k_proj", kHeadDim, kHidden);
    add_matrix(p + "v_proj", kHeadDim, kHidden);
    add_matrix(p + "o_proj", kHidden, 2 * kHeadDim);
    add_norm(p + "q_norm.weight", kHeadDim);
    add_norm(p + "k_norm.weight", kHeadDim);
  }

  void add_layer(const std::string& p) {
    add_norm(p + "input_layernorm.weight", kHidden);
    add_norm(p + "post_attention_layernorm.weight", kHidden);
    add_matrix(p + "mlp.gate", kExperts, kHidden);
    add_matrix(p + "mlp.shared_expert_gate", 1, kHidden);
    add_matrix(p + "mlp.shared_expert.gate_proj", kIntermediate, kHidden);
    add_matrix(p + "mlp.shared_expert.up_proj", kIntermediate, kHidden);
    add_matrix(p + "mlp.shared_expert.down_proj", kHidden, kIntermediate);
    add_experts(p + "mlp.");
  }

  void add_experts(const std::string& p) {
    // [projection][expert] -> parts
    std::array<std::vector<Parts>, 3> all;
    const std::array<std::string, 3> names = {"gate_proj", "up_proj", "down_proj"};
    for (size_t m = 0; m < names.size(); ++m) {
      for (int64_t e = 0; e < kExperts; ++e) {
        const std::string name = formatted("{}experts.{}.{}", p, e, names[m]);
        const int64_t rows = m == 2 ? kHidden : kIntermediate;
        const int64_t cols = m == 2 ? kIntermediate : kHidden;
        all[m].push_back(matrix(name, rows, cols, options_.bits));
        if (options_.experts != ExpertNames::kSeparate) continue;
        for (const auto& [ending, tensor] : all[m].back()) add(name + ending, tensor);
      }
    }
    if (options_.experts == ExpertNames::kStacked) {
      for (size_t m = 0; m < names.size(); ++m) stack(p + "switch_mlp." + names[m], {all[m]}, true);
    }
    if (options_.experts == ExpertNames::kFused) {
      stack(p + "experts.gate_up_proj", {all[0], all[1]}, false);
      stack(p + "experts.down_proj", {all[2]}, false);
    }
  }

  // [experts, rows of all the matrices, cols]. Fused names have no ".weight".
  void stack(const std::string& module, const std::vector<std::vector<Parts>>& matrices,
             bool weight_ending) {
    for (size_t part = 0; part < matrices.front().front().size(); ++part) {
      std::vector<TinyTensor> pieces;
      int64_t rows = 0;
      for (size_t e = 0; e < static_cast<size_t>(kExperts); ++e) {
        for (const std::vector<Parts>& of : matrices) pieces.push_back(of[e][part].second);
      }
      for (const std::vector<Parts>& of : matrices) rows += of[0][part].second.shape[0];
      std::string ending = matrices.front().front()[part].first;
      if (ending == ".weight" && !weight_ending) ending.clear();
      add(module + ending, join(pieces, {kExperts, rows, pieces.front().shape[1]}));
    }
  }

  TinyOptions options_;
  TinyModel model_;
};

}  // namespace

TinyModel make_tiny_model(const TinyOptions& options) { return Builder(options).build(); }

void TinyModel::write(const std::string& directory) const {
  write_bytes(directory + "/config.json", config.dump(1));
  std::vector<safetensors::WriteEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back({.name = name,
                       .dtype = tensor.dtype,
                       .shape = tensor.shape,
                       .data = std::as_bytes(std::span(tensor.bytes))});
  }
  const Status written = safetensors::write_file(directory + "/model.safetensors", entries, {});
  EXPECT_TRUE(written.ok()) << (written.ok() ? "" : written.error().to_string());
}

}  // namespace moeflux::testing
