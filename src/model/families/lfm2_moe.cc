// LFM2-8B-A1B and 24B-A2B: gated short convolutions with some layers of attention between them,
// dense first layers, sigmoid router with a bias that selects.
#include <utility>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"
#include "model/mixers/short_conv.h"

namespace moeflux::lfm2_moe {
namespace {

constexpr std::string_view kFullAttention = "full_attention";

// layer_types, or full_attn_idxs: the numbers of the layers with attention.
std::vector<bool> read_attention_layers(Config& c, int64_t num_layers) {
  std::vector<bool> attends(static_cast<size_t>(num_layers), false);
  if (c.has("full_attn_idxs") && !c.has("layer_types")) {
    for (const int64_t layer : c.ints_or("full_attn_idxs", {})) {
      if (layer >= 0 && layer < num_layers) {
        attends[static_cast<size_t>(layer)] = true;
      } else {
        c.fail(ErrorCode::kInvalidArgument,
               formatted("full_attn_idxs has {}, expected 0 to {}", layer, num_layers - 1));
      }
    }
    return attends;
  }
  c.expect_present("layer_types");
  const std::vector<std::string> types =
      read_layer_types(c, num_layers, {"layer_types", "conv", std::string(kFullAttention), 1});
  for (size_t i = 0; i < attends.size(); ++i) attends[i] = types[i] == kFullAttention;
  return attends;
}

void read_router(Config& c, MoeSpec& moe) {
  moe.router.score = RouterScore::kSigmoid;
  moe.correction_bias = c.bool_or("use_expert_bias", true);
  moe.router.normalize = c.bool_or("norm_topk_prob", true);
  moe.router.normalize_epsilon = 1e-6f;
  moe.router.scale = static_cast<float>(c.number_or("routed_scaling_factor", 1.0, 0.0, 1e6));
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  spec.tie_word_embeddings =
      c.bool_or(c.has("tie_embedding") ? "tie_embedding" : "tie_word_embeddings", true);
  const int64_t num_layers = read_num_layers(c);
  c.expect_present("num_key_value_heads");
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  attention.qk_norm = QkNorm::kPerHead;
  attention.rope = read_rope(c, {.head_dim = attention.head_dim});
  ShortConvSpec conv;
  conv.channels = spec.hidden_size;
  conv.taps = c.require_int("conv_L_cache", {2, 8});
  c.expect_bool("conv_bias", false);
  const auto attends = share_mixer(attention);
  const auto convolves = share_mixer(conv);
  MoeSpec moe = read_experts(c);
  read_router(c, moe);
  const int64_t num_dense = c.int_or("num_dense_layers", 2, {0, 4096});
  std::vector<bool> dense;
  for (int64_t i = 0; i < num_layers; ++i) dense.push_back(i < num_dense);
  spec.layers = make_layers(c, {}, moe, dense);
  const std::vector<bool> pattern = read_attention_layers(c, num_layers);
  for (size_t i = 0; i < pattern.size(); ++i) {
    spec.layers[i].mixer = pattern[i] ? attends : convolves;
  }
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  return usual_names(spec, {{"input_layernorm", "operator_norm"},
                            {"post_attention_layernorm", "ffn_norm"},
                            {"norm", "embedding_norm"},  // the last norm, despite its name
                            {"self_attn.o_proj", "self_attn.out_proj"},
                            {"self_attn.q_norm", "self_attn.q_layernorm"},
                            {"self_attn.k_norm", "self_attn.k_layernorm"},
                            {"mlp.gate.e_score_correction_bias", "feed_forward.expert_bias"},
                            {"mlp", "feed_forward"}});
}

MlxNames mlx_names(std::string_view) {
  return {.renamed = {{"w1", "gate_proj"}, {"w2", "down_proj"}, {"w3", "up_proj"}}};
}

}  // namespace

extern const Family family = {{"lfm2_moe"}, read_spec, names, blocks::make_decoder, mlx_names};

}  // namespace moeflux::lfm2_moe
