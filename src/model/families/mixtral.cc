// Mixtral 8x7B and 8x22B: plain grouped attention, softmax over the chosen experts.
#include <utility>

#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::mixtral {
namespace {

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  LayerSpec layer;
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  attention.rope = read_rope(
      c, {.head_dim = attention.head_dim, .interleaved = c.bool_or("rope_interleave", false)});
  attention.window = c.int_or("sliding_window", 0, {0, 1 << 30});
  layer.mixer = share_mixer(attention);
  layer.moe = read_experts(c, "intermediate_size");
  c.ignore("router_jitter_noise");
  spec.layers.assign(static_cast<size_t>(num_layers), layer);
  return finish_spec(c, std::move(spec));
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  if (weights.has("layers.0.block_sparse_moe.gate.weight")) {
    options.names.moe = "block_sparse_moe";
    options.names.router = "block_sparse_moe.gate";
  }
  return blocks::make_decoder(spec, weights, options);
}

MlxNames mlx_names(std::string_view) { return {.renamed = {{"mlp", "block_sparse_moe"}}}; }

}  // namespace

extern const Family family = {{"mixtral"}, read_spec, usual_names, create, mlx_names};

}  // namespace moeflux::mixtral
