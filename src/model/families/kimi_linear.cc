// Kimi-Linear-48B-A3B: three layers of Kimi delta attention to one of latent attention without
// rotary positions, the mixture of DeepSeek-V3. Kimi-K3, whose layers also mix earlier ones'
// streams and whose experts see fewer numbers, is planned and inspected only.
#include <utility>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/kda.h"
#include "model/mixers/latent_attention.h"

namespace moeflux {
namespace kimi_linear {
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

// Keys of Kimi-K3 only: its experts are latent, and only its are.
bool is_k3(const ModelSpec& spec) { return last_moe(spec).latent_size > 0; }

void read_k3(Config& c, MoeSpec& moe) {
  moe.latent_size = c.require_int("routed_expert_hidden_size");
  for (const std::string_view key : {"latent_moe_use_norm", "mla_use_output_gate"}) {
    c.expect_present(key);
    c.expect_bool(key, true);
  }
  for (const std::string_view key :
       {"attn_res_block_size", "activation_situ_beta", "activation_situ_linear_beta"}) {
    c.ignore(key);  // of what is not run
  }
}

Status runs(const ModelSpec& spec) {
  if (!is_k3(spec)) return {};
  return make_error(ErrorCode::kUnsupported,
                    "Kimi-K3 is planned and inspected, not run: attention residuals, SiTU units, "
                    "norms of latent experts and gates of latent attention by number are missing");
}

Result<ModelSpec> read_spec(Config& c) {
  const bool is_latent = c.has("routed_expert_hidden_size");
  ModelSpec spec = read_trunk(c, is_latent ? "situ" : "silu");
  spec.max_position_embeddings =
      c.int_or("model_max_length", spec.max_position_embeddings, {1, 1 << 30});
  const int64_t num_layers = read_num_layers(c);
  c.expect_bool("mla_use_nope", true);
  const auto full = share_mixer(read_latent_attention_without_rope(c));
  KdaSpec kda;
  const std::vector<std::string> types = read_kda(c, num_layers, kda);
  if (is_latent) kda.stored_decays = kda.head_dim;  // whatever the number of heads
  const auto linear = share_mixer(kda);
  MoeSpec moe = read_experts(c);
  c.expect_present("routed_scaling_factor");
  read_noaux_tc(c, moe);
  c.ignore("use_grouped_topk");  // of one group where there is none
  if (is_latent) read_k3(c, moe);
  read_shared_experts(c, moe);
  spec.layers = make_layers(c, {}, moe, read_dense_layers(c, num_layers));
  for (size_t i = 0; i < types.size(); ++i) {
    spec.layers[i].mixer = types[i] == kFull ? full : linear;
  }
  return finish_spec(c, std::move(spec));
}

// Kimi-K3's weights that no part of the decoder claims.
void claim_k3(const ModelSpec& spec, WeightStore& weights) {
  const int64_t h = spec.hidden_size;
  const auto claim_scores = [&](const std::string& name) {
    for (const char* part : {"norm", "proj"}) {
      (void)weights.vector(formatted("{}_res_{}.weight", name, part), {h});
    }
  };
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    const LayerSpec& layer = spec.layers[static_cast<size_t>(i)];
    const std::string p = formatted("layers.{}.", i);
    claim_scores(p + "self_attention");
    claim_scores(p + "mlp");
    if (layer.moe.num_experts > 0) {
      (void)weights.vector(p + "block_sparse_moe.routed_expert_norm.weight",
                           {layer.moe.latent_size});
    }
    if (const auto* full = mixer_as<LatentAttentionSpec>(layer)) {
      (void)weights.matrix(p + "self_attn.g_proj", full->num_heads * full->v_dim, h);
    }
  }
  claim_scores("output_attn");
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  if (is_k3(spec)) {
    claim_k3(spec, weights);
    options.names.latent_in = "block_sparse_moe.routed_expert_down_proj";
    options.names.latent_out = "block_sparse_moe.routed_expert_up_proj";
  }
  // Transformers saves dense layers under the name of the others.
  if (blocks::any_layer_has(spec, weights, "block_sparse_moe.gate_proj.weight")) {
    options.names.dense = "block_sparse_moe";
  }
  if (blocks::any_layer_has(spec, weights, "block_sparse_moe.gate.weight")) {
    options.names.moe = "block_sparse_moe";
    options.names.router = "block_sparse_moe.gate";
    options.names.correction_bias = "block_sparse_moe.gate.e_score_correction_bias";
    options.names.shared = "block_sparse_moe.shared_experts";
  }
  return blocks::make_decoder(spec, weights, options);
}

}  // namespace
}  // namespace kimi_linear

extern const Family kimi_linear_family;
const Family kimi_linear_family = {.model_types = {"kimi_linear"},
                                   .read_spec = kimi_linear::read_spec,
                                   .name_scheme = usual_names,
                                   .create = kimi_linear::create,
                                   .runs = kimi_linear::runs};

}  // namespace moeflux
