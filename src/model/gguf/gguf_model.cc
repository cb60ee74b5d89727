#include "model/gguf/gguf_model.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "base/format.h"
#include "base/json.h"
#include "model/gguf/gguf_architecture.h"
#include "model/gguf/gguf_meanings.h"

namespace moeflux {
namespace {

/// Names of every architecture, behind its own.
constexpr std::array<GgufName, 29> kUsualNames = {{
    {"token_embd", "embed_tokens"},
    {"output", "lm_head"},
    {"output_norm", "norm"},
    {"attn_norm", "input_layernorm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_sinks.weight", "self_attn.sinks"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
    {"nextn.eh_proj", "eh_proj"},
    {"nextn.e_proj", "e_proj"},  // the two halves of eh_proj, where they are apart
    {"nextn.h_proj", "h_proj"},
    {"nextn.enorm", "enorm"},
    {"nextn.hnorm", "hnorm"},
    {"nextn.shared_head_norm", "shared_head.norm"},
    {"nextn.shared_head_head", ""},  // the model's own
    {"nextn.embed_tokens", ""},
}};
constexpr std::string_view kSharedGate = "ffn_gate_inp_shexp.weight";
constexpr std::string_view kSharedGateModule = "mlp.shared_expert_gate.weight";
constexpr std::string_view kFusedExperts = "ffn_gate_up_exps.weight";

Result<const GgufArchitecture*> find_architecture(const gguf::Container& model) {
  std::string known;
  for (const GgufArchitecture* architecture : gguf_architectures()) {
    for (const std::string_view name : architecture->names) {
      if (name == model.architecture()) return architecture;
      known += (known.empty() ? "" : ", ") + std::string(name);
    }
  }
  return make_error(ErrorCode::kUnsupported,
                    "general.architecture is {}, which is not supported; known are {}",
                    json_excerpt(Json(model.architecture())), known);
}

/// Behind `stored` in `name`: nothing, or a dot and a last component. Nullopt: another name.
std::optional<std::string_view> suffix_behind(std::string_view name, std::string_view stored) {
  if (!name.starts_with(stored)) return std::nullopt;
  const std::string_view suffix = name.substr(stored.size());
  if (suffix.empty()) return suffix;
  if (suffix[0] != '.' || suffix.find('.', 1) != std::string_view::npos) return std::nullopt;
  return suffix;
}

/// "blk.7.attn_q.weight" as 7 and "attn_q.weight"; nullopt for tensors of no block.
std::optional<std::pair<int64_t, std::string_view>> split_block(std::string_view name) {
  constexpr std::string_view kBlock = "blk.";
  if (!name.starts_with(kBlock)) return std::nullopt;
  int64_t block = 0;
  const char* begin = name.data() + kBlock.size();
  const char* end = name.data() + name.size();
  const auto [rest, problem] = std::from_chars(begin, end, block);
  if (problem != std::errc() || rest == end || *rest != '.') return std::nullopt;
  return std::pair(block, std::string_view(rest + 1, static_cast<size_t>(end - rest - 1)));
}

/// "ffn_gate.7.weight" behind "ffn_gate." as 7 and "weight": experts of Mixtral's first files, a
/// tensor each.
std::optional<std::pair<int64_t, std::string_view>> one_expert(std::string_view rest,
                                                               std::string_view before) {
  if (!rest.starts_with(before)) return std::nullopt;
  rest.remove_prefix(before.size());
  int64_t expert = 0;
  const auto [end, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), expert);
  const auto digits = static_cast<size_t>(end - rest.data());
  if (problem != std::errc() || digits + 1 >= rest.size() || rest[digits] != '.') {
    return std::nullopt;
  }
  return std::pair(expert, rest.substr(digits + 1));
}

/// Turns a file's tensors into entries.
class Translator {
 public:
  Translator(const gguf::Container& model, const GgufArchitecture& architecture, const Json& config,
             int64_t draft_blocks)
      : model_(model), architecture_(architecture), config_(config), draft_blocks_(draft_blocks) {
    for (const gguf::TensorInfo& tensor : model.tensors()) by_name_.emplace(tensor.name, &tensor);
  }

  Result<TensorIndex::Entries> run() {
    MF_RETURN_IF_ERROR(add_keys());
    const int64_t layers = config_["num_hidden_layers"].get<int64_t>() + draft_blocks_;
    for (const gguf::TensorInfo& tensor : model_.tensors()) {
      const auto block = split_block(tensor.name);
      if (const auto name = name_in_one_layer(tensor.name)) {
        MF_RETURN_IF_ERROR(add_named(tensor, *name));
      } else if (!gguf_other_part(tensor.name).empty()) {
        continue;  // gguf_parts_left_alone() counts it
      } else if (!block) {
        MF_RETURN_IF_ERROR(add(tensor, "", "", tensor.name));
      } else if (block->first < layers) {
        const std::string before = formatted("blk.{}.", block->first);
        MF_RETURN_IF_ERROR(
            add(tensor, before, formatted("layers.{}.", block->first), block->second));
      }  // others predict further tokens
    }
    return std::move(entries_);
  }

 private:
  bool has(const std::string& name) const { return by_name_.contains(name); }

  std::string in_one_layer(std::string_view canonical) const {
    const int64_t layer = config_[std::string(architecture_.one_layer)].front();
    return formatted("layers.{}.{}", layer - 1, canonical);
  }

  std::optional<std::string> name_in_one_layer(std::string_view stored) const {
    for (const GgufName& name : architecture_.of_one_layer) {
      const auto suffix = suffix_behind(stored, name.stored);
      if (suffix) return in_one_layer(name.canonical) + std::string(*suffix);
    }
    return std::nullopt;
  }

  // Keys are those of the first file.
  Status add_keys() {
    for (const GgufName& name : architecture_.keys_of_one_layer) {
      const std::string key = formatted("{}.{}", model_.architecture(), name.stored);
      const gguf::Value* value = model_.keys().find(key);
      const auto* array = value == nullptr ? nullptr : std::get_if<gguf::Stored>(&value->data);
      if (array == nullptr || value->type != gguf::ValueType::kArray ||
          array->size_bytes != array->count * sizeof(int64_t)) {
        return make_error(ErrorCode::kCorruption,
                          "key {} is {}, expected an array of whole numbers of 64 bits", key,
                          value == nullptr ? "missing" : gguf::value_type_name(value->type));
      }
      entries_[in_one_layer(name.canonical)] = {.file = 0,
                                                .offset_bytes = array->offset_bytes,
                                                .size_bytes = array->size_bytes,
                                                .dtype = DType::kI64,
                                                .shape = {static_cast<int64_t>(array->count)}};
    }
    return {};
  }

  static TensorEntry entry_of(const gguf::TensorInfo& tensor) {
    TensorEntry entry{.file = tensor.file,
                      .offset_bytes = tensor.offset_bytes,
                      .size_bytes = tensor.size_bytes,
                      .dtype = DType::kU8,
                      .shape = tensor.shape};
    if (tensor.type->are_ids) {
      entry.dtype = DType::kI32;
    } else if (tensor.type->format->is_plain()) {
      entry.dtype = tensor.type->format->dtype;
    } else {
      entry.format = *tensor.type->format;
    }
    return entry;
  }

  Status put(std::string name, TensorEntry entry, const gguf::TensorInfo& from) {
    if (entries_.emplace(name, std::move(entry)).second) return {};
    return make_error(ErrorCode::kCorruption, "tensor {} and another one both are {}", from.name,
                      name);
  }

  /// The first name that counts, and what `rest` is called by it. Ollama's files leave the last
  /// component of some names out: "ssm_dt" is "ssm_dt.bias".
  const GgufName* find_name(std::string_view rest, const std::string& before,
                            std::string& canonical) const {
    const bool is_bare = rest.find('.') == std::string_view::npos;
    for (const std::string_view left_out : {"", ".bias", ".weight"}) {
      if (!left_out.empty() && !is_bare) continue;
      const std::string whole = formatted("{}{}", rest, left_out);
      for (const std::span<const GgufName> names :
           {std::span<const GgufName>(architecture_.tensors),
            std::span<const GgufName>(kUsualNames)}) {
        for (const GgufName& name : names) {
          const auto suffix = suffix_behind(whole, name.stored);
          if (!suffix || (!left_out.empty() && !suffix->empty()) ||
              (!name.unless.empty() && has(before + std::string(name.unless)))) {
            continue;
          }
          canonical = formatted("{}{}", name.canonical, *suffix);
          return &name;
        }
      }
    }
    return nullptr;
  }

  /// `rest` is the name behind `before` in the file, `to` what stands in its place.
  Status add(const gguf::TensorInfo& tensor, const std::string& before, const std::string& to,
             std::string_view rest) {
    if (rest.ends_with(".input_scale")) return {};  // of 4-bit activations
    std::string name;
    if (const GgufName* known = find_name(rest, before, name)) {
      return known->canonical.empty() ? Status() : add_named(tensor, to + name);
    }
    if (rest == kSharedGate) return add_shared_gate(tensor, to);
    if (rest.starts_with("attn_qkv.")) return add_fused(tensor, to, rest.substr(9));
    for (const std::string_view projection : {"gate", "up", "down", "gate_up"}) {
      const auto suffix = suffix_behind(rest, formatted("ffn_{}_exps", projection));
      if (suffix) return add_experts(tensor, before, to, projection, *suffix);
      if (const auto own = one_expert(rest, formatted("ffn_{}.", projection))) {
        return put(formatted("{}experts.{}.{}_proj.{}", below_experts(to), own->first, projection,
                             own->second),
                   entry_of(tensor), tensor);
      }
    }
    return put(tensor.name, entry_of(tensor), tensor);
  }

  Status add_named(const gguf::TensorInfo& tensor, std::string name) {
    TensorEntry entry = entry_of(tensor);
    // As MLX has it, whose norms also carry their one: families tell the two spellings apart by it.
    if (name.ends_with(".conv1d.weight") && entry.shape.rank() == 2) {
      entry.shape = Shape{entry.shape[0], entry.shape[1], 1};
    }
    if (name.ends_with(".mamba.norm.weight")) {  // a row for each group
      entry.shape = Shape{entry.shape.num_elements()};
    }
    return put(std::move(name), std::move(entry), tensor);
  }

  /// A vector, or a matrix of one row.
  Status add_shared_gate(const gguf::TensorInfo& tensor, const std::string& to) {
    TensorEntry entry = entry_of(tensor);
    if (entry.shape.rank() == 1) entry.shape = Shape{1, entry.shape[0]};
    return put(to + std::string(kSharedGateModule), std::move(entry), tensor);
  }

  std::string below_experts(const std::string& to) const {
    std::string below = to + std::string(architecture_.experts);
    if (!below.empty() && below.back() != '.') below += '.';
    return below;
  }

  /// Stacks of experts, gate and up together or apart.
  Status add_experts(const gguf::TensorInfo& tensor, const std::string& before,
                     const std::string& to, std::string_view projection, std::string_view suffix) {
    const std::string below = below_experts(to);
    if (!has(before + std::string(kFusedExperts))) {
      return put(formatted("{}switch_mlp.{}_proj{}", below, projection, suffix), entry_of(tensor),
                 tensor);
    }
    const std::string_view own = suffix == ".weight" ? "" : suffix;
    return put(formatted("{}experts.{}_proj{}", below, projection, own), entry_of(tensor), tensor);
  }

  /// Sliding layers may have a number of their own.
  int64_t kv_heads_of(const gguf::TensorInfo& tensor) const {
    const int64_t usual = config_.value("num_key_value_heads", int64_t{0});
    const auto block = split_block(tensor.name);
    const auto types = config_.find("layer_types");
    const auto at = block ? static_cast<size_t>(block->first) : 0;
    if (!block || types == config_.end() || at >= types->size()) return usual;
    const bool slides = types->at(at) == "sliding_attention";
    return slides ? config_.value("swa_num_key_value_heads", usual) : usual;
  }

  /// Rows of q, then of k, then of v. A factor holds for all of them.
  Status add_fused(const gguf::TensorInfo& tensor, const std::string& to, std::string_view suffix) {
    const TensorEntry all = entry_of(tensor);
    const int64_t head_dim = config_.value("head_dim", int64_t{0});
    const int64_t kv_heads = kv_heads_of(tensor);
    const int64_t k_rows = kv_heads * head_dim;
    const int64_t v_rows = kv_heads * config_.value("v_head_dim", head_dim);
    const int64_t rows = all.shape.rank() == 0 ? 0 : all.shape[0];
    const bool is_factor = suffix == "scale";
    if (!is_factor && (k_rows <= 0 || v_rows <= 0 || k_rows + v_rows >= rows)) {
      return make_error(ErrorCode::kCorruption,
                        "tensor {} has {} rows, expected those of queries, {} of keys and {} of "
                        "values",
                        tensor.name, rows, k_rows, v_rows);
    }
    const std::array<std::pair<const char*, int64_t>, 3> parts = {
        {{"q_proj", rows - k_rows - v_rows}, {"k_proj", k_rows}, {"v_proj", v_rows}}};
    uint64_t begin = 0;
    for (const auto& [name, own_rows] : parts) {
      TensorEntry entry = all;
      if (!is_factor) {
        entry.shape.set(0, own_rows);
        entry.size_bytes =
            all.size_bytes / static_cast<uint64_t>(rows) * static_cast<uint64_t>(own_rows);
        entry.offset_bytes += begin;
        begin += entry.size_bytes;
      }
      MF_RETURN_IF_ERROR(
          put(formatted("{}self_attn.{}.{}", to, name, suffix), std::move(entry), tensor));
    }
    return {};
  }

  const gguf::Container& model_;
  const GgufArchitecture& architecture_;
  const Json& config_;
  const int64_t draft_blocks_;
  std::map<std::string_view, const gguf::TensorInfo*> by_name_;
  TensorIndex::Entries entries_;
};

Result<Json> read_config(const gguf::Container& model, const GgufArchitecture& architecture) {
  GgufKeys keys(model);
  Json config = Json::object();
  read_gguf_trunk(keys, config);
  architecture.config(keys, config);
  read_gguf_attention_biases(keys, config);
  if (keys.status().ok()) judge_unread_gguf_keys(keys, config);
  MF_RETURN_IF_ERROR(keys.status());
  return config;
}

/// The name in a file for `rest` of a block; of several names the one that says most.
std::string stored_name(const GgufArchitecture& architecture, std::string_view rest) {
  if (rest == kSharedGateModule) return std::string(kSharedGate);
  const GgufName* best = nullptr;
  std::string_view best_suffix;
  for (const std::span<const GgufName> names :
       {std::span<const GgufName>(architecture.tensors), std::span<const GgufName>(kUsualNames)}) {
    for (const GgufName& name : names) {
      if (name.canonical.empty()) continue;
      const auto suffix = suffix_behind(rest, name.canonical);
      if (!suffix || (best != nullptr && name.canonical.size() <= best->canonical.size())) continue;
      best = &name;
      best_suffix = *suffix;
    }
  }
  if (best == nullptr) return std::string(rest);
  return formatted("{}{}", best->stored, best_suffix);
}

}  // namespace

Result<const GgufArchitecture*> gguf_architecture_of(std::string_view model_type) {
  for (const GgufArchitecture* architecture : gguf_architectures()) {
    for (const GgufWritten& written : architecture->written) {
      if (written.model_type == model_type) return architecture;
    }
  }
  return make_error(ErrorCode::kUnsupported, "models of type {} are not written as GGUF here",
                    model_type);
}

std::string gguf_name(const GgufArchitecture& architecture, std::string_view canonical) {
  constexpr std::string_view kLayers = "layers.";
  if (!canonical.starts_with(kLayers)) return stored_name(architecture, canonical);
  const size_t dot = canonical.find('.', kLayers.size());
  const std::string_view number = canonical.substr(kLayers.size(), dot - kLayers.size());
  return formatted("blk.{}.{}", number, stored_name(architecture, canonical.substr(dot + 1)));
}

Result<std::string> gguf_config(const gguf::Container& model) {
  const std::string& path = model.file(0).path();
  const Result<const GgufArchitecture*> architecture = find_architecture(model);
  if (!architecture.ok()) return architecture.error().with_context(path);
  const Result<Json> config = read_config(model, **architecture);
  if (!config.ok()) return config.error().with_context(path);
  return config->dump(2, ' ', true, Json::error_handler_t::replace);
}

Result<std::string> gguf_left_alone(const gguf::Container& model, int64_t draft_blocks) {
  MF_ASSIGN_OR_RETURN(const GgufArchitecture* architecture, find_architecture(model));
  MF_ASSIGN_OR_RETURN(const Json config, read_config(model, *architecture));
  return gguf_parts_left_alone(model, config["num_hidden_layers"].get<int64_t>() + draft_blocks);
}

Result<TensorIndex> gguf_tensors(gguf::Container model, int64_t draft_blocks) {
  const std::string path = model.file(0).path();
  const Result<const GgufArchitecture*> architecture = find_architecture(model);
  if (!architecture.ok()) return architecture.error().with_context(path);
  const Result<Json> config = read_config(model, **architecture);
  if (!config.ok()) return config.error().with_context(path);
  Result<TensorIndex::Entries> entries =
      Translator(model, **architecture, *config, draft_blocks).run();
  if (!entries.ok()) return entries.error().with_context(path);
  return TensorIndex::canonical(model.take_files(), std::move(entries).value());
}

}  // namespace moeflux
