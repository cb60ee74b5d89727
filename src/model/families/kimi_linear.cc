// Kimi-Linear-48B-A3B: three layers of Kimi delta attention to one of latent attention without
// rotary positions, the mixture of DeepSeek-V3. Kimi-K3 besides has attention residuals, experts
// that see fewer numbers, gated outputs and units with soft caps.
#include <algorithm>
#include <utility>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/kda.h"
#include "model/mixers/latent_attention.h"

namespace moeflux::kimi_linear {
namespace {

constexpr std::string_view kLinear = "linear_attention";
constexpr std::string_view kFull = "full_attention";

// The publisher's object of linear_attn_config, whose lists of layers count from 1.
std::vector<std::string> read_published(Config& c, int64_t num_layers, KdaSpec& kda) {
  std::vector<std::string> types(static_cast<size_t>(num_layers), std::string(kLinear));
  Config own = c.object("linear_attn_config");
  kda.heads = own.require_int("num_heads", {1, 4096});
  kda.head_dim = own.require_int("head_dim", {1, 4096});
  kda.conv_taps = own.require_int("short_conv_kernel_size", {2, 8});
  if (own.has("gate_lower_bound")) {
    kda.decay_bound = static_cast<float>(own.require_number("gate_lower_bound", -1e3, -1e-3));
  }
  kda.whole_gate = own.bool_or("use_full_rank_gate", false);
  own.expect_present("full_attn_layers");
  for (const int64_t layer : own.ints_or("full_attn_layers", {})) {
    if (layer >= 1 && layer <= num_layers) {
      types[static_cast<size_t>(layer - 1)] = kFull;
    } else {
      own.fail(ErrorCode::kInvalidArgument,
               formatted("full_attn_layers has {}, expected 1 to {}", layer, num_layers));
    }
  }
  const std::vector<int64_t> others = own.ints_or("kda_layers", {});
  for (const int64_t layer : others) {
    if (layer >= 1 && layer <= num_layers && types[static_cast<size_t>(layer - 1)] == kLinear) {
      continue;
    }
    own.fail(ErrorCode::kInvalidArgument,
             formatted("kda_layers has {}, expected a layer up to {} that is not in "
                       "full_attn_layers",
                       layer, num_layers));
  }
  c.absorb(own);
  return types;
}

// Either spelling: the type of each layer.
std::vector<std::string> read_kda(Config& c, int64_t num_layers, KdaSpec& kda) {
  kda.low_rank = true;
  if (c.has("linear_attn_config")) return read_published(c, num_layers, kda);
  kda.heads = c.require_int("linear_num_heads", {1, 4096});
  kda.head_dim = c.require_int("linear_head_dim", {1, 4096});
  kda.conv_taps = c.require_int("linear_conv_kernel_dim", {2, 8});
  c.expect_present("layer_types");
  return read_layer_types(c, num_layers,
                          {"layer_types", std::string(kLinear), std::string(kFull), 1});
}

constexpr std::string_view kSitu = "situ";  // the unit of Kimi-K3

bool is_k3(Config& c) {
  const Json* unit = c.find("hidden_act");
  return unit != nullptr && *unit == kSitu;
}

GluOptions read_situ(Config& c) {
  const double gate = c.number_or("activation_situ_beta", 1.0, 1e-3, 1e6);
  const double up = c.require_number("activation_situ_linear_beta", 1e-3, 1e6);
  return {.activation = Activation::kSoftCapped,
          .alpha = static_cast<float>(up),
          .limit = static_cast<float>(gate)};
}

// Keys of Kimi-K3 only.
void read_k3(Config& c, ModelSpec& spec, MoeSpec& moe) {
  moe.glu = read_situ(c);
  if (c.has("routed_expert_hidden_size")) {
    moe.latent_size = c.require_int("routed_expert_hidden_size");
    moe.latent_out_norm = c.bool_or("latent_moe_use_norm", false);
  } else {
    c.expect_bool("latent_moe_use_norm", false);
  }
  spec.block_residual.layers = c.int_or("attn_res_block_size", 0, {1, 4096});
}

Result<ModelSpec> read_spec(Config& c) {
  const bool k3 = is_k3(c);
  ModelSpec spec = read_trunk(c, k3 ? kSitu : "silu");
  spec.max_position_embeddings =
      c.int_or("model_max_length", spec.max_position_embeddings, {1, 1 << 30});
  const int64_t num_layers = read_num_layers(c);
  c.expect_bool("mla_use_nope", true);
  LatentAttentionSpec attention = read_latent_attention_without_rope(c);
  if (k3 && c.bool_or("mla_use_output_gate", false)) attention.gate = HeadGate::kPerElement;
  const auto full = share_mixer(attention);
  KdaSpec kda;
  const std::vector<std::string> types = read_kda(c, num_layers, kda);
  // The published files have head_dim numbers, whatever the number of heads.
  if (k3) kda.stored_decays = std::max(kda.head_dim, kda.heads);
  const auto linear = share_mixer(kda);
  MoeSpec moe = read_experts(c);
  c.expect_present("routed_scaling_factor");
  read_noaux_tc(c, moe);
  c.ignore("use_grouped_topk");  // of one group where there is none
  if (k3) read_k3(c, spec, moe);
  read_shared_experts(c, moe);
  LayerSpec layer;
  layer.dense_glu = moe.glu;
  spec.layers = make_layers(c, layer, moe, read_dense_layers(c, num_layers, 1));
  for (size_t i = 0; i < types.size(); ++i) {
    spec.layers[i].mixer = types[i] == kFull ? full : linear;
  }
  return finish_spec(c, std::move(spec));
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  options.names.latent_in = "mlp.routed_expert_down_proj";
  options.names.latent_out = "mlp.routed_expert_up_proj";
  // Transformers saves dense layers under the name of the others.
  if (blocks::any_layer_has(spec, weights, "block_sparse_moe.gate_proj.weight")) {
    options.names.dense = "block_sparse_moe";
  }
  if (blocks::any_layer_has(spec, weights, "block_sparse_moe.gate.weight")) {
    options.names.moe = "block_sparse_moe";
    options.names.router = "block_sparse_moe.gate";
    options.names.correction_bias = "block_sparse_moe.gate.e_score_correction_bias";
    options.names.shared = "block_sparse_moe.shared_experts";
    options.names.latent_in = "block_sparse_moe.routed_expert_down_proj";
    options.names.latent_out = "block_sparse_moe.routed_expert_up_proj";
    options.names.latent_out_norm = "block_sparse_moe.routed_expert_norm";
  }
  return blocks::make_decoder(spec, weights, options);
}

}  // namespace

extern const Family family = {.model_types = {"kimi_linear", "kimi_k3"},
                              .read_spec = read_spec,
                              .name_scheme = usual_names,
                              .create = create};

}  // namespace moeflux::kimi_linear
