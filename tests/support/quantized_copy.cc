#include "tests/support/quantized_copy.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_index.h"
#include "quant/quantize.h"
#include "tests/support/host_bytes.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

struct FloatTensor {
  Shape shape;
  std::vector<float> values;
};
using FloatTensors = std::map<std::string, FloatTensor>;

constexpr std::array<std::string_view, 3> kProjections = {"gate_proj", "up_proj", "down_proj"};
constexpr std::array<std::string_view, 3> kNumbered = {"w1", "w3", "w2"};

FloatTensors read_floats(const std::string& directory) {
  FloatTensors tensors;
  const auto index = TensorIndex::open(directory);
  EXPECT_TRUE(index.ok()) << (index.ok() ? "" : index.error().to_string());
  if (!index.ok()) return tensors;
  for (const auto& [name, entry] : index->entries()) {
    if (!is_plain_float(entry.dtype)) continue;  // numbers that follow from the config
    std::vector<std::byte> bytes(entry.size_bytes);
    EXPECT_TRUE(read_tensor(*index, entry, bytes).ok()) << name;
    FloatTensor tensor{entry.shape, {}};
    for (int64_t i = 0; i < entry.shape.num_elements(); ++i) {
      tensor.values.push_back(load_float(bytes.data(), i, entry.dtype));
    }
    tensors[name] = std::move(tensor);
  }
  return tensors;
}

struct IdTable {
  DType dtype;
  Shape shape;
  std::vector<std::byte> data;
};

// The experts of tokens, which are copied as they are.
std::map<std::string, IdTable> read_id_tables(const std::string& directory) {
  std::map<std::string, IdTable> tables;
  const auto index = TensorIndex::open(directory);
  EXPECT_TRUE(index.ok()) << (index.ok() ? "" : index.error().to_string());
  if (!index.ok()) return tables;
  for (const auto& [name, entry] : index->entries()) {
    if (!name.ends_with(".tid2eid")) continue;
    IdTable table{entry.dtype, entry.shape, std::vector<std::byte>(entry.size_bytes)};
    EXPECT_TRUE(read_tensor(*index, entry, table.data).ok()) << name;
    tables[name] = std::move(table);
  }
  return tables;
}

// Swaps the last two extents of [count, rows, cols].
FloatTensor transposed(const FloatTensor& tensor) {
  const int64_t count = tensor.shape[0];
  const int64_t rows = tensor.shape[1];
  const int64_t cols = tensor.shape[2];
  FloatTensor result{{count, cols, rows}, std::vector<float>(tensor.values.size())};
  for (int64_t i = 0; i < static_cast<int64_t>(tensor.values.size()); ++i) {
    const int64_t matrix = i / (rows * cols);
    const int64_t row = i / cols % rows;
    const int64_t col = i % cols;
    result.values[static_cast<size_t>((matrix * cols + col) * rows + row)] =
        tensor.values[static_cast<size_t>(i)];
  }
  return result;
}

// Rows of a [count, rows, cols] tensor: begin, begin + step, ...
struct RowChoice {
  int64_t begin = 0;
  int64_t step = 1;
  int64_t count = 0;
};

int64_t element_of(const Shape& shape, const RowChoice& choice, int64_t i) {
  const int64_t cols = shape[2];
  const int64_t matrix = i / (choice.count * cols);
  const int64_t row = choice.begin + i / cols % choice.count * choice.step;
  return (matrix * shape[1] + row) * cols + i % cols;
}

FloatTensor take_rows(const FloatTensor& from, const RowChoice& choice) {
  FloatTensor part{{from.shape[0], choice.count, from.shape[2]}, {}};
  for (int64_t i = 0; i < part.shape.num_elements(); ++i) {
    part.values.push_back(from.values[static_cast<size_t>(element_of(from.shape, choice, i))]);
  }
  return part;
}

void put_rows(FloatTensor& into, const RowChoice& choice, const FloatTensor& part) {
  for (int64_t i = 0; i < part.shape.num_elements(); ++i) {
    into.values[static_cast<size_t>(element_of(into.shape, choice, i))] =
        part.values[static_cast<size_t>(i)];
  }
}

FloatTensor reshaped(FloatTensor tensor, const Shape& shape) {
  tensor.shape = shape;
  return tensor;
}

// "model.layers.3.mlp.gate" -> "mlp.gate".
std::string without_layer(const std::string& module) {
  const size_t layers = module.find("layers.");
  if (layers != std::string::npos) return module.substr(module.find('.', layers + 7) + 1);
  constexpr std::string_view kThinker = "thinker.";
  return module.starts_with(kThinker) ? module.substr(kThinker.size()) : module;
}

bool cut_end(std::string& text, std::string_view ending) {
  if (!text.ends_with(ending)) return false;
  text.resize(text.size() - ending.size());
  return true;
}

class Writer {
 public:
  explicit Writer(std::string directory) : directory_(std::move(directory)) {}

  void add(const std::string& name, DType dtype, const Shape& shape, std::vector<std::byte> data) {
    EXPECT_FALSE(tensors_.contains(name)) << name;
    tensors_[name] = {dtype, shape, std::move(data)};
  }
  void add(const std::string& name, const FloatTensor& tensor, DType dtype = DType::kF32) {
    std::vector<std::byte> bytes(tensor.values.size() * static_cast<size_t>(dtype_bits(dtype)) / 8);
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      const float value = tensor.values[i];
      if (dtype == DType::kF32) {
        std::memcpy(bytes.data() + 4 * i, &value, 4);
      } else {
        const uint16_t bits = dtype == DType::kF16 ? to_f16(value).bits : to_bf16(value).bits;
        std::memcpy(bytes.data() + 2 * i, &bits, 2);
      }
    }
    add(name, dtype, tensor.shape, std::move(bytes));
  }
  void write(const Json& config) const {
    write_bytes(directory_ + "/config.json", config.dump(1));
    std::vector<safetensors::WriteEntry> entries;
    for (const auto& [name, tensor] : tensors_) {
      entries.push_back({name, tensor.dtype, tensor.shape, tensor.data});
    }
    const Status written = safetensors::write_file(directory_ + "/model.safetensors", entries, {});
    EXPECT_TRUE(written.ok()) << (written.ok() ? "" : written.error().to_string());
  }

 private:
  struct Stored {
    DType dtype;
    Shape shape;
    std::vector<std::byte> data;
  };
  std::string directory_;
  std::map<std::string, Stored> tensors_;
};

class Copier {
 public:
  Copier(const std::string& from, const std::string& quantized, const std::string& twin,
         const QuantizedCopyOptions& options)
      : options_(options),
        config_(*parse_json(read_bytes(from + "/config.json"), "config.json")),
        type_(config_["model_type"].get<std::string>()),
        tensors_(read_floats(from)),
        tables_(read_id_tables(from)),
        mlx_(quantized),
        twin_(twin) {}

  QuantizedCopyReport copy();

 private:
  bool zero_centred_norms() const {
    return type_ == "qwen3_5_moe_text" || type_ == "qwen3_5_text" || type_ == "qwen3_next" ||
           type_ == "qwen4_exp_text";
  }
  const Json& text_config() const {
    return config_.contains("text_config") ? config_["text_config"] : config_;
  }
  std::string mlx_name(const std::string& name) const;
  FloatTensor add_module(const std::string& module, const FloatTensor& weight);
  void copy_matrix(const std::string& name);
  void copy_kv_b(const std::string& name);
  void copy_vector(const std::string& name);
  void copy_separate_experts(const std::string& first);
  void copy_fused_experts(const std::string& name);

  QuantizedCopyOptions options_;
  Json config_;
  std::string type_;
  FloatTensors tensors_;
  std::map<std::string, IdTable> tables_;
  Writer mlx_;
  Writer twin_;
  Json overrides_ = Json::object();
  QuantizedCopyReport report_;
};

std::string Copier::mlx_name(const std::string& name) const {
  const bool nested =
      type_ == "qwen3_5_moe_text" || type_ == "qwen3_5_text" || type_ == "gemma4_text";
  return nested ? "language_model." + name : name;
}

// Adds the three parts of a [..., rows, cols] module, or the plain tensor where no group divides
// cols. Returns what a reader sees.
FloatTensor Copier::add_module(const std::string& original, const FloatTensor& weight) {
  const std::string module = mlx_name(original);
  const std::string kind = without_layer(original);
  const int64_t cols = weight.shape.back();
  if (cols % 32 != 0) {
    mlx_.add(module + ".weight", weight);
    ++report_.plain_tensors;
    return weight;
  }
  ++report_.modules[kind];
  const int group = cols % 64 == 0 ? 64 : 32;
  const bool router = kind == "mlp.gate" || kind == "mlp.shared_expert_gate" ||
                      kind == "mlp.router" || kind == "mlp.router.gate" || kind == "router.proj" ||
                      kind == "block_sparse_moe.gate" || kind == "ffn.gate" ||
                      kind.ends_with(".wgate") || kind == "attn.indexer.weights_proj" ||
                      kind.ends_with("block_inject_weight");
  const int bits = router ? options_.router_bits : options_.bits;
  if (group != 64 || bits != options_.bits) {
    overrides_[module] = {{"group_size", group}, {"bits", bits}};
  }
  const QuantFormat format = QuantFormat::affine(bits, group, options_.scale_dtype);
  const int64_t rows = weight.shape.num_elements() / cols;
  auto parts = quantize_affine({weight.values, rows, cols}, format);
  EXPECT_TRUE(parts.ok()) << module << (parts.ok() ? "" : parts.error().to_string());
  if (!parts.ok()) return weight;
  FloatTensor seen{weight.shape, decode(*parts, format, rows, cols)};
  Shape codes = weight.shape;
  codes.set(codes.rank() - 1, cols * bits / 32);
  Shape groups = weight.shape;
  groups.set(groups.rank() - 1, cols / group);
  mlx_.add(module + ".weight", DType::kU32, codes, std::move(parts->codes));
  mlx_.add(module + ".scales", format.dtype, groups, std::move(parts->scales));
  mlx_.add(module + ".biases", format.dtype, groups, std::move(parts->offsets));
  return seen;
}

void Copier::copy_matrix(const std::string& name) {
  std::string module = name;
  ASSERT_TRUE(cut_end(module, ".weight")) << name;
  twin_.add(name, add_module(module, tensors_.at(name)));
}

// [heads * (nope + v), latent] -> embed_q [heads, latent, nope], unembed_out [heads, v, latent].
void Copier::copy_kv_b(const std::string& name) {
  const FloatTensor& kv_b = tensors_.at(name);
  const auto& config = text_config();
  // Layers with windows may have their own.
  const auto of_kind = [&](const std::string& key) {
    const bool is_usual = kv_b.shape.back() == config["kv_lora_rank"].get<int64_t>();
    return config[is_usual ? key : "swa_" + key].get<int64_t>();
  };
  const int64_t heads = of_kind("num_attention_heads");
  const int64_t nope = of_kind("qk_nope_head_dim");
  const int64_t v = of_kind("v_head_dim");
  std::string attention = name;
  ASSERT_TRUE(cut_end(attention, "kv_b_proj.weight"));
  FloatTensor heads_view = reshaped(kv_b, {heads, nope + v, kv_b.shape.back()});
  const RowChoice keys{0, 1, nope};
  const RowChoice values{nope, 1, v};
  const FloatTensor embed_q =
      add_module(attention + "embed_q", transposed(take_rows(heads_view, keys)));
  const FloatTensor unembed = add_module(attention + "unembed_out", take_rows(heads_view, values));
  put_rows(heads_view, keys, transposed(embed_q));
  put_rows(heads_view, values, unembed);
  twin_.add(name, reshaped(heads_view, kv_b.shape));
}

void Copier::copy_vector(const std::string& name) {
  FloatTensor tensor = tensors_.at(name);
  twin_.add(name, tensor);
  ++report_.plain_tensors;
  if (name.ends_with("conv1d.weight")) {
    ASSERT_EQ(tensor.shape.rank(), 3);
    tensor.shape = {tensor.shape[0], tensor.shape[2], tensor.shape[1]};
  }
  bool shifted = false;
  for (const std::string_view norm :
       {"input_layernorm.weight", "post_attention_layernorm.weight", "model.norm.weight",
        "q_norm.weight", "k_norm.weight", "hc_norm.weight", "q_layernorm.weight",
        "k_layernorm.weight", "norm_key.weight", "norm_query.weight", "norm_conv.weight"}) {
    shifted = shifted || (zero_centred_norms() && name.ends_with(norm));
  }
  for (float& value : tensor.values) value += shifted ? 1.0f : 0.0f;
  mlx_.add(mlx_name(name), tensor);
}

// All experts of a layer and projection, found by the name of the first.
void Copier::copy_separate_experts(const std::string& first) {
  const size_t zero = first.find(".experts.0.");
  const std::string before = first.substr(0, zero);
  std::string projection = first.substr(zero + 11);
  ASSERT_TRUE(cut_end(projection, ".weight")) << first;
  const auto name_of = [&](int64_t expert) {
    return formatted("{}.experts.{}.{}.weight", before, expert, projection);
  };
  FloatTensor stacked{{0, tensors_.at(first).shape[0], tensors_.at(first).shape[1]}, {}};
  for (int64_t e = 0; tensors_.contains(name_of(e)); ++e) {
    const std::vector<float>& values = tensors_.at(name_of(e)).values;
    stacked.values.insert(stacked.values.end(), values.begin(), values.end());
    stacked.shape.set(0, e + 1);
  }
  std::string mlx_projection = projection;
  for (size_t i = 0; i < kNumbered.size(); ++i) {
    if (projection == kNumbered[i]) mlx_projection = kProjections[i];
  }
  const FloatTensor seen = add_module(before + ".switch_mlp." + mlx_projection, stacked);
  const auto size = static_cast<int64_t>(tensors_.at(first).values.size());
  for (int64_t e = 0; e < stacked.shape[0]; ++e) {
    const auto begin = seen.values.begin() + e * size;
    twin_.add(name_of(e), {tensors_.at(first).shape, {begin, begin + size}});
  }
}

// experts.gate_up_proj and experts.down_proj: out-major halves, or input-major; gate and up in turn
// where there are biases. Or w13_weight, whose rows are in turn, and w2_weight.
void Copier::copy_fused_experts(const std::string& name) {
  const bool numbered = name.ends_with("_weight");
  const bool fused = name.ends_with("gate_up_proj") || name.ends_with("w13_weight");
  const std::string before = name.substr(0, name.rfind('.'));
  const Shape& in = tensors_.at(before + (numbered ? ".w13_weight" : ".gate_up_proj")).shape;
  const Shape& out = tensors_.at(before + (numbered ? ".w2_weight" : ".down_proj")).shape;
  const bool input_major = !numbered && in == Shape{out[0], out[2], 2 * out[1]};
  const bool with_bias = tensors_.contains(name + "_bias");
  const std::string module = before + (input_major ? "." : ".switch_glu.");
  FloatTensor weight = tensors_.at(name);
  if (input_major) weight = transposed(weight);
  const int64_t rows = fused ? weight.shape[1] / 2 : weight.shape[1];
  const bool in_turn = with_bias || numbered;
  const int64_t step = in_turn ? 2 : 1;
  const std::array<RowChoice, 2> halves = {RowChoice{0, step, rows},
                                           RowChoice{in_turn ? 1 : rows, step, rows}};
  FloatTensor bias;
  if (with_bias) {
    bias = tensors_.at(name + "_bias");
    twin_.add(name + "_bias", bias);
    bias.shape = {bias.shape[0], bias.shape[1], 1};
  }
  for (size_t half = 0; half < (fused ? 2u : 1u); ++half) {
    const RowChoice choice = fused ? halves[half] : RowChoice{0, 1, rows};
    const std::string projection = module + std::string(kProjections[fused ? half : 2]);
    put_rows(weight, choice, add_module(projection, take_rows(weight, choice)));
    if (!with_bias) continue;
    mlx_.add(mlx_name(projection) + ".bias",
             reshaped(take_rows(bias, choice), {bias.shape[0], rows}), options_.scale_dtype);
  }
  twin_.add(name, input_major ? transposed(weight) : weight);
}

QuantizedCopyReport Copier::copy() {
  for (const auto& [name, tensor] : tensors_) {
    if (name.find(".experts.0.") != std::string::npos) {
      copy_separate_experts(name);
    } else if (name.ends_with(".experts.gate_up_proj") || name.ends_with(".experts.down_proj") ||
               name.ends_with(".experts.w13_weight") || name.ends_with(".experts.w2_weight")) {
      copy_fused_experts(name);
    } else if (name.find(".experts.") != std::string::npos &&
               !name.ends_with(".e_score_correction_bias") &&
               !name.ends_with(".post_expert_norm.weight")) {
      continue;  // taken with the first expert, or with the weight the bias belongs to
    } else if (options_.split_kv_b && name.ends_with("kv_b_proj.weight")) {
      copy_kv_b(name);
    } else if (tensor.shape.rank() == 2 && name.ends_with(".weight") &&
               !name.ends_with("_res_proj.weight")) {  // which mlx-lm leaves plain
      copy_matrix(name);
    } else {
      copy_vector(name);
    }
  }
  for (const auto& [name, table] : tables_) {
    mlx_.add(mlx_name(name), table.dtype, table.shape, table.data);
    twin_.add(name, table.dtype, table.shape, table.data);
  }
  twin_.write(config_);
  Json quantization = {{"group_size", 64}, {"bits", options_.bits}, {"mode", "affine"}};
  for (const auto& [module, override] : overrides_.items()) quantization[module] = override;
  config_["quantization"] = quantization;
  config_["quantization_config"] = quantization;
  mlx_.write(config_);
  return report_;
}

}  // namespace

QuantizedCopyReport write_quantized_copy(const std::string& from, const std::string& quantized,
                                         const std::string& twin,
                                         const QuantizedCopyOptions& options) {
  return Copier(from, quantized, twin, options).copy();
}

}  // namespace moeflux::testing
