// ZAYA1: compressed convolutional attention, a residual whose parts are scaled, and one expert for
// each token, which a network chooses that sees what the router before has seen, or none.
#include <utility>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/convolved_attention.h"

namespace moeflux::zaya {
namespace {

constexpr std::string_view kFull = "hybrid";
constexpr std::string_view kSliding = "hybrid_sliding";

ConvolvedAttentionSpec read_attention(Config& c, int64_t hidden_size) {
  const AttentionSpec heads = read_heads(c, hidden_size);
  ConvolvedAttentionSpec spec;
  spec.num_heads = heads.num_heads;
  spec.num_kv_heads = heads.num_kv_heads;
  spec.head_dim = heads.head_dim;
  spec.scale = heads.scale;
  spec.bias = c.bool_or("attention_bias", false);
  spec.channel_taps = c.int_or("cca_time0", 2, {2, 16});
  spec.head_taps = c.int_or("cca_time1", 2, {2, 16});
  if (spec.num_kv_heads * spec.head_dim % 2 != 0) {
    c.fail(ErrorCode::kInvalidArgument,
           formatted("head_dim {} times num_key_value_heads {} is odd; half of the values are the "
                     "token's own",
                     spec.head_dim, spec.num_kv_heads));
  }
  return spec;
}

MoeSpec read_moe(Config& c, float eps) {
  MoeSpec moe = read_experts(c);
  c.expect_number("num_experts_per_tok", 1.0);
  moe.router_hidden_size = c.int_or("router_hidden_size", 256);
  moe.router_norm_eps = eps;
  moe.skips = true;
  moe.correction_bias = true;
  moe.router.normalize = false;
  return moe;
}

// Kinds of layers and their bases are transformers' where the config does not say them.
void set_mixers(Config& c, ModelSpec& spec, ConvolvedAttentionSpec full) {
  if (!c.has("rope_scaling")) {
    c.assume("rope_parameters",
             {{kFull, {{"rope_theta", 5e6}, {"partial_rotary_factor", 0.5}}},
              {kSliding, {{"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}}}});
  }
  const auto num_layers = static_cast<int64_t>(spec.layers.size());
  const std::vector<std::string> types = read_layer_types(
      c, num_layers, {"layer_types", std::string(kFull), std::string(kSliding), num_layers + 1});
  ConvolvedAttentionSpec sliding = full;
  const auto rope_of = [&](std::string_view type) {
    return read_rope(c, {.head_dim = full.head_dim, .layer_type = type});
  };
  const Json* parameters = c.find("rope_parameters");
  const auto has = [&](std::string_view type) {
    return parameters != nullptr && parameters->is_object() && parameters->contains(type);
  };
  sliding.window = c.int_or("sliding_window", 0, {0, 1 << 30});
  full.rope = rope_of(kFull);
  sliding.rope = has(kFull) && !has(kSliding) ? full.rope : rope_of(kSliding);
  const auto mixers = std::pair(share_mixer(full), share_mixer(sliding));
  for (size_t i = 0; i < types.size(); ++i) {
    const bool slides = types[i] == kSliding;
    spec.layers[i].mixer = slides ? mixers.second : mixers.first;
    if (slides && sliding.window == 0) {
      c.fail(ErrorCode::kInvalidArgument,
             formatted("layer_types has \"{}\", but there is no sliding_window", kSliding));
    }
  }
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  spec.tie_word_embeddings = c.bool_or("tie_word_embeddings", true);
  spec.head_bias = c.bool_or("lm_head_bias", false);
  spec.scaled_residual = true;
  LayerSpec layer;
  layer.moe = read_moe(c, spec.rms_norm_eps);
  spec.layers.assign(static_cast<size_t>(read_num_layers(c)), layer);
  set_mixers(c, spec, read_attention(c, spec.hidden_size));
  return finish_spec(c, std::move(spec));
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  options.names.correction_bias = "mlp.gate.balancing_biases";
  return blocks::make_decoder(spec, weights, options);
}

}  // namespace

extern const Family family = {{"zaya"}, read_spec, usual_names, create};

}  // namespace moeflux::zaya
