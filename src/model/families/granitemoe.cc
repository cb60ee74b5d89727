// Granite without experts, Granite 3 MoE, Granite Swash, and Granite 4.0, most of whose layers are
// Mamba-2 in H models; Micro and smaller ones have no experts. Multipliers of embeddings,
// residuals, scores and logits; softmax over the chosen experts; in some a shared expert without a
// gate.
#include <utility>

#include "base/format.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"
#include "model/mixers/mamba2.h"

namespace moeflux::granitemoe {
namespace {

float read_multiplier(Config& c, std::string_view key) {
  return static_cast<float>(c.number_or(key, 1.0, 1e-9, 1e9));
}

bool is_dense(std::string_view model_type) {
  return model_type == "granite" || model_type == "granite_swa";
}

bool is_swash(std::string_view model_type) { return model_type.ends_with("_swa"); }

AttentionSpec read_attention(Config& c, int64_t hidden_size) {
  AttentionSpec attention = read_heads(c, hidden_size);
  attention.scale = read_multiplier(c, "attention_multiplier");
  read_attention_bias(c, attention);
  RopeSpec rope = read_rope(
      c, {.head_dim = attention.head_dim, .interleaved = c.bool_or("rope_interleave", false)});
  const bool is_hybrid = c.model_type() == "granitemoehybrid";
  const std::string positions = c.string_or("position_embedding_type", is_hybrid ? "nope" : "rope");
  if (positions == "rope") {
    attention.rope = std::move(rope);
  } else if (positions != "nope") {
    c.fail(ErrorCode::kUnsupported,
           formatted("position_embedding_type is \"{}\", known are rope and nope", positions));
  }
  return attention;
}

// "auto", as is usual in transformers, divides the inner width by the heads.
int64_t read_mamba_head_dim(Config& c, int64_t hidden_size, int64_t heads) {
  const Json* stored = c.find("mamba_d_head");
  const bool is_auto = stored == nullptr || stored->is_null() || *stored == "auto";
  if (!is_auto) return c.require_int("mamba_d_head", {1, 4096});
  c.ignore("mamba_d_head");
  const int64_t inner = c.int_or("mamba_expand", 2, {1, 64}) * hidden_size;
  if (inner % heads != 0) {
    c.fail(ErrorCode::kInvalidArgument,
           formatted("mamba_n_heads {} does not divide mamba_expand times hidden_size, {}", heads,
                     inner));
  }
  return inner / heads;
}

Mamba2Spec read_mamba(Config& c, int64_t hidden_size) {
  Mamba2Spec mamba;
  mamba.scan.heads = c.require_int("mamba_n_heads", {1, 65536});
  mamba.scan.head_dim = read_mamba_head_dim(c, hidden_size, mamba.scan.heads);
  mamba.scan.groups = c.require_int("mamba_n_groups", {1, 65536});
  mamba.norm_groups = mamba.scan.groups;
  mamba.scan.state_dim = c.require_int("mamba_d_state", {1, 4096});
  mamba.conv_taps = c.require_int("mamba_d_conv", {2, 8});
  mamba.conv_bias = c.bool_or("mamba_conv_bias", true);
  if (mamba.scan.heads % mamba.scan.groups != 0) {
    c.fail(ErrorCode::kInvalidArgument,
           formatted("mamba_n_heads {} is not a multiple of mamba_n_groups {}", mamba.scan.heads,
                     mamba.scan.groups));
  }
  c.expect_bool("mamba_proj_bias", false);
  c.expect_string("normalization_function", "rmsnorm");
  expect_no_time_step_limit(c);
  for (const std::string_view key : {"mamba_chunk_size", "mamba_expand"}) c.ignore(key);
  return mamba;
}

// In the publisher's words or in those of transformers.
std::vector<bool> read_attention_layers(Config& c, int64_t num_layers) {
  c.expect_present("layer_types");
  const std::vector<std::string> types =
      c.has("layer_types") ? c.require_strings("layer_types") : std::vector<std::string>{};
  std::vector<bool> attends;
  for (const std::string& type : types) {
    attends.push_back(type == "attention" || type == "full_attention");
    if (!attends.back() && type != "mamba" && type != "linear_attention") {
      c.fail(ErrorCode::kUnsupported,
             formatted("layer_types has \"{}\", known are mamba and attention", type));
    }
  }
  if (static_cast<int64_t>(types.size()) != num_layers) {
    c.fail(ErrorCode::kInvalidArgument, formatted("layer_types has {} entries, "
                                                  "num_hidden_layers is {}",
                                                  types.size(), num_layers));
    attends.resize(static_cast<size_t>(num_layers), true);
  }
  return attends;
}

// Granite Swash: sinks, windows, and a base of rotary positions for each layer, 0 for none.
void set_windows(Config& c, std::vector<LayerSpec>& layers) {
  const auto num_layers = static_cast<int64_t>(layers.size());
  const int64_t window = read_window(c, 128);
  std::vector<bool> sliding;
  for (int64_t i = 0; i < num_layers; ++i) sliding.push_back(i % 4 != 0);
  if (c.has("layer_types")) sliding = read_sliding_layers(c, num_layers);
  const std::vector<Json> bases = read_layer_entries(c, "layer_rope_theta", num_layers);
  for (size_t i = 0; i < layers.size(); ++i) {
    AttentionSpec attention = *mixer_as<AttentionSpec>(layers[i]);
    attention.sinks = true;
    if (sliding[i]) attention.window = window;
    if (!bases.empty() && !bases[i].is_number()) {
      c.fail(ErrorCode::kInvalidArgument,
             formatted("layer_rope_theta has {}, expected numbers", json_excerpt(bases[i])));
    } else if (!bases.empty()) {
      const auto theta = bases[i].get<double>();
      attention.rope = theta > 0.0 ? read_rope(c, {.head_dim = attention.head_dim,
                                                   .interleaved = attention.rope.interleaved,
                                                   .theta = theta})
                                   : RopeSpec{};
    }
    layers[i].mixer = share_mixer(std::move(attention));
  }
}

// Granite 4.0 without experts has what is beside them in others.
LayerSpec read_network(Config& c) {
  LayerSpec layer;
  const std::string_view type = c.model_type();
  if (is_dense(type)) {
    read_dense_network(c, layer);
    return layer;
  }
  const Json* const experts = c.find("num_local_experts");
  if (type == "granitemoehybrid" && experts != nullptr && *experts == 0) {
    for (const char* key : {"num_local_experts", "num_experts_per_tok", "intermediate_size"}) {
      c.ignore(key);
    }
    layer.dense_intermediate_size = c.require_int("shared_intermediate_size");
    return layer;
  }
  layer.moe = read_experts(c, "intermediate_size");
  if (type != "granitemoe") {
    layer.moe.shared_intermediate_size =
        c.int_or("shared_intermediate_size", 0, {0, int64_t{1} << 24});
  }
  return layer;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const bool is_hybrid = c.model_type() == "granitemoehybrid";
  if (c.model_type() == "granite_swa") {
    spec.tie_word_embeddings = c.bool_or("tie_word_embeddings", true);
  }
  spec.embedding_multiplier = read_multiplier(c, "embedding_multiplier");
  spec.residual_multiplier = read_multiplier(c, "residual_multiplier");
  spec.logit_multiplier = 1.0f / read_multiplier(c, "logits_scaling");
  const int64_t num_layers = read_num_layers(c);
  const auto attends = share_mixer(read_attention(c, spec.hidden_size));
  LayerSpec layer = read_network(c);
  layer.mixer = attends;
  spec.layers.assign(static_cast<size_t>(num_layers), layer);
  if (is_swash(c.model_type())) set_windows(c, spec.layers);
  if (is_hybrid) {
    const auto scans = share_mixer(read_mamba(c, spec.hidden_size));
    const std::vector<bool> pattern = read_attention_layers(c, num_layers);
    for (size_t i = 0; i < pattern.size(); ++i) {
      if (!pattern[i]) spec.layers[i].mixer = scans;
    }
  }
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  NameScheme scheme = usual_names(spec);
  if (is_dense(spec.model_type)) return scheme;
  if (last_moe(spec).num_experts == 0) {
    scheme.renamed = {{"mlp", "shared_mlp"}};
    return scheme;
  }
  const bool has_layer = !is_swash(spec.model_type);
  scheme.renamed = {
      {"mlp.gate", has_layer ? "block_sparse_moe.router.layer" : "block_sparse_moe.router"},
      {"mlp.shared_experts", "shared_mlp"},
      {"mlp", "block_sparse_moe"}};
  return scheme;
}

}  // namespace

extern const Family family = {{"granite", "granite_swa", "granitemoe", "granitemoe_swa",
                               "granitemoeshared", "granitemoehybrid"},
                              read_spec,
                              names,
                              blocks::make_decoder,
                              nullptr,
                              {{"granite4_vision", "granite"}, {"granite_docling", "granite"}}};

}  // namespace moeflux::granitemoe
