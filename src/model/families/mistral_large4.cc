// Mistral Large 4: latent attention to tokens that an index has chosen. Queries of both come from
// the layer's input and grow with the logarithm of their position; frequencies of positions are
// learned, and some layers have none; some share the choice or the latents of an earlier one.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/format.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/latent_attention.h"

namespace moeflux::mistral_large4 {
namespace {

std::vector<int64_t> read_turning_layers(Config& c, int64_t num_layers) {
  const int64_t interval = c.int_or("no_rope_layer_interval", 4, {1, 4096});
  if (c.has("no_rope_layers")) return read_layer_ints(c, "no_rope_layers", num_layers);
  std::vector<int64_t> turning;
  for (int64_t i = 1; i <= num_layers; ++i) turning.push_back(i % interval != 0 ? 1 : 0);
  return turning;
}

// The layer whose latents each layer attends to.
std::vector<int64_t> read_sources(Config& c, const std::vector<int64_t>& turning) {
  const auto num_layers = static_cast<int64_t>(turning.size());
  std::vector<int64_t> own;
  for (int64_t i = 0; i < num_layers; ++i) own.push_back(i);
  if (!c.has("kv_source_layers")) return own;
  const std::vector<int64_t> sources = read_layer_ints(c, "kv_source_layers", num_layers);
  for (int64_t i = 0; i < num_layers; ++i) {
    const auto at = [&](const std::vector<int64_t>& list, int64_t layer) {
      return list[static_cast<size_t>(layer)];
    };
    const int64_t source = at(sources, i);
    const bool is_there = source >= 0 && source <= i;
    if (is_there && at(sources, source) == source &&
        (at(turning, source) != 0) == (at(turning, i) != 0)) {
      continue;
    }
    c.fail(ErrorCode::kInvalidArgument,
           formatted("kv_source_layers has {} for layer {}, expected it or an earlier layer with "
                     "latents of its own that turn as its do (no_rope_layers)",
                     source, i));
    return own;
  }
  return sources;
}

LatentAttentionSpec read_attention(Config& c, float norm_eps) {
  LatentAttentionSpec attention = read_latent_attention(c, {.interleaved = true});
  if (attention.q_lora_rank != 0) {
    c.fail(ErrorCode::kUnsupported,
           formatted("q_lora_rank is {}, expected none", attention.q_lora_rank));
  }
  attention.latent_norm_eps = norm_eps;
  attention.logarithmic = true;
  attention.learned_rope = true;
  return attention;
}

void read_mixers(Config& c, ModelSpec& spec) {
  const int64_t num_layers = spec.num_layers();
  const LatentAttentionSpec usual = read_attention(c, spec.rms_norm_eps);
  KeyIndexSpec index = read_key_index(c, usual, true);
  index.logarithmic = true;
  const std::vector<bool> indexed = read_indexed_layers(c, num_layers, 1);
  const std::vector<int64_t> turning = read_turning_layers(c, num_layers);
  const std::vector<int64_t> sources = read_sources(c, turning);
  (void)read_layer_types(c, num_layers, {"layer_types", "indexed_attention", "indexed_attention"});
  for (int64_t i = 0; i < num_layers; ++i) {
    const auto at = static_cast<size_t>(i);
    LatentAttentionSpec attention = usual;
    KeyIndexSpec own = index;
    if (turning[at] == 0) {
      attention.nope_dim += attention.rope_dim;
      attention.rope_dim = 0;
      attention.rope = own.rope = {};
      attention.learned_rope = false;
    }
    attention.tokens_read = own.tokens_read();
    if (indexed[at]) attention.index = own;
    if (sources[at] != i) attention.keys_of = static_cast<int32_t>(sources[at]);
    attention.lends_keys = std::count(sources.begin(), sources.end(), i) > 1;
    spec.layers[at].mixer = share_mixer(attention);
  }
}

// Positions of transformers' class, which reads a base nowhere else.
void assume_positions(Config& c) {
  if (c.has("rope_scaling") || c.has("rope_parameters")) return;
  c.assume("rope_parameters", {{"rope_type", "yarn"},
                               {"rope_theta", 1e4},
                               {"factor", 2048.0},
                               {"original_max_position_embeddings", 512},
                               {"attention_factor", 1.0}});
}

Result<ModelSpec> read_spec(Config& c) {
  assume_positions(c);
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  spec.logit_soft_cap = static_cast<float>(c.number_or("final_logit_softcapping", 30.0, 1e-6, 1e6));
  MoeSpec moe = read_experts(c);
  c.expect_bool("norm_topk_prob", true);
  read_noaux_tc(c, moe);
  moe.router.score = RouterScore::kSoftmax;
  moe.correction_bias = false;
  read_shared_experts(c, moe);
  spec.layers = make_layers(c, {}, moe, read_dense_layers(c, num_layers, 1));
  read_mixers(c, spec);
  return finish_spec(c, std::move(spec));
}

// Mistral's own names.
NameScheme names(const ModelSpec& spec) {
  NameScheme scheme = usual_names(spec);
  scheme.renamed = {{"self_attn.q_proj", "attention.wq"},
                    {"self_attn.kv_a_proj_with_mqa", "attention.wkv_a_with_mqa"},
                    {"self_attn.kv_b_proj", "attention.wkv_b"},
                    {"self_attn.kv_a_layernorm", "attention.kv_a_norm"},
                    {"self_attn.o_proj", "attention.wo"},
                    {"self_attn", "attention"},
                    {"input_layernorm", "attention_norm"},
                    {"post_attention_layernorm", "ffn_norm"},
                    {"mlp.gate", "gate"},
                    {"mlp.experts", "experts"},
                    {"mlp.shared_experts", "shared_experts"},
                    {"mlp", "feed_forward"},
                    {"embed_tokens", "tok_embeddings"},
                    {"lm_head", "output"}};
  scheme.otherwise = {{"feed_forward.switch_mlp", "switch_mlp"}};  // beside others of the layer
  return scheme;
}

}  // namespace

extern const Family family = {{"mistral_large4", "mistral_large4_text"}, read_spec, names};

}  // namespace moeflux::mistral_large4
