// Hy4: latent attention to tokens that an index has chosen, whose choice most layers share, with
// sinks and a gate for each number that it gives. A residual of several streams that do not mix;
// limited units in routed experts alone. Rows of positions are pairs side by side, as published.
#include <utility>
#include <vector>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/latent_attention.h"

namespace moeflux::hy_v4 {
namespace {

StreamSpec read_streams(Config& c) {
  c.expect_bool("enable_ihc", true);
  StreamSpec streams;
  streams.count = c.require_int("hc_mult", {2, kStreamsMax});
  streams.iterations = 0;
  streams.eps = static_cast<float>(c.number_or("hc_eps", 1e-6, 0.0, 1.0));
  streams.magnitude = static_cast<float>(c.number_or("hc_magnitude", 2.0, 0.0, 1e3));
  streams.gated_end = true;
  return streams;
}

LatentAttentionSpec read_attention(Config& c, float norm_eps) {
  LatentAttentionSpec attention = read_latent_attention(c, {.interleaved = true});
  c.expect_bool("gated_mla", true);
  c.expect_string("gating_type", "elementwise");
  c.expect_bool("learnable_sink", true);
  for (const std::string_view key : {"learnable_sink_init", "enable_lm_head_fp32"}) c.ignore(key);
  attention.gate = HeadGate::kPerElement;
  attention.sinks = true;
  KeyIndexSpec index = read_key_index(c, attention, true);
  index.turns_last = true;
  index.norm_eps = norm_eps;
  attention.tokens_read = index.tokens_read();
  attention.index = index;
  if (attention.q_lora_rank == 0) {
    c.fail(ErrorCode::kUnsupported, "q_lora_rank is missing, which an index needs for its queries");
  }
  return attention;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  spec.streams = read_streams(c);
  LatentAttentionSpec attention = read_attention(c, spec.rms_norm_eps);
  const auto indexed = share_mixer(attention);
  attention.index.reset();
  const auto sharing = share_mixer(attention);
  const std::vector<bool> has_index = read_indexed_layers(c, num_layers, 4);
  (void)read_layer_types(c, num_layers, {"layer_types", "indexed_attention", "indexed_attention"});
  MoeSpec moe = read_experts(c);
  c.expect_present("routed_scaling_factor");
  read_noaux_tc(c, moe);
  read_shared_experts(c, moe);
  const double limit = c.number_or("swiglu_limit", 10.0, -1e6, 1e6);
  if (limit > 0.0) moe.glu.limit = static_cast<float>(limit);
  moe.shared_glu = GluOptions{};
  spec.layers = make_layers(c, {}, moe, read_dense_layers(c, num_layers, 1));
  for (size_t i = 0; i < has_index.size(); ++i) {
    spec.layers[i].mixer = has_index[i] ? indexed : sharing;
  }
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  NameScheme scheme = usual_names(spec);
  scheme.renamed = {{"self_attn.g_proj", "self_attn.linear_gate"},
                    {"self_attn.sinks", "self_attn.learnable_sink_param"},
                    {"hc_head_fn", "hc_head.hc_head_fn"},
                    {"hc_head_base", "hc_head.hc_head_base"},
                    {"hc_head_scale", "hc_head.hc_head_scale"}};
  for (const auto& [own, published] :
       {std::pair{"attn", "hc_attn_layer.hc_pre"}, {"ffn", "hc_mlp_layer.hc_pre"}}) {
    for (const char* part : {"fn", "base", "scale"}) {
      scheme.renamed.emplace_back(formatted("hc_{}_{}", own, part),
                                  formatted("{}.hc_{}", published, part));
    }
  }
  return scheme;
}

MlxNames mlx_names(std::string_view) { return {.plain_modules = {"kv_b_proj"}}; }

}  // namespace

extern const Family family = {{"hy_v4"}, read_spec, names, blocks::make_decoder, mlx_names};

}  // namespace moeflux::hy_v4
