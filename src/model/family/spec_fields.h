// Parts of a config.json that many families share, read with their checks. Problems stick to the
// Config.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config/config.h"
#include "model/mixers/attention.h"
#include "model/mixers/gated_delta.h"
#include "model/mixers/latent_attention.h"
#include "model/model_spec.h"
#include "model/weights/weight_store.h"

namespace moeflux {

/// Widths, vocabulary, eps and embedding tying; hidden_act must be `activation`. Layers are left
/// empty.
ModelSpec read_trunk(Config& c, std::string_view activation = "silu");
int64_t read_num_layers(Config& c);

/// num_attention_heads, num_key_value_heads (default: as many), head_dim (default: hidden_size /
/// heads) and the scale head_dim^-0.5.
AttentionSpec read_heads(Config& c, int64_t hidden_size);
/// attention_bias: of all four projections, unless attention_out_bias says otherwise of the last.
void read_attention_bias(Config& c, AttentionSpec& attention);
/// A family's rotary positions in latent attention.
struct LatentRope {
  bool interleaved = true;           // where rope_interleave does not say it
  int64_t wider = 0;                 // width that partial_rotary_factor scales; 0: a key's
  bool scales_queries = false;       // as RopeDefaults has it
  std::string_view layer_type = {};  // the same
};
/// The keys of multi-head latent attention, with rope and YaRN's factor in the scale.
LatentAttentionSpec read_latent_attention(Config& c, const LatentRope& rope);
/// The same where no dimension turns, whatever a config that has keys of rope says in them.
LatentAttentionSpec read_latent_attention_without_rope(Config& c);
/// The index of DeepSeek's sparse attention, whose heads turn as the attention's do.
KeyIndexSpec read_key_index(Config& c, const LatentAttentionSpec& attention, bool interleaved);
/// The layers that have one: by name (indexer_types), by letter, or by the distance between them.
std::vector<bool> read_indexed_layers(Config& c, int64_t num_layers, int64_t usual_distance);
GatedDeltaSpec read_gated_delta(Config& c);
/// Refuses bounds of Mamba's steps.
void expect_no_time_step_limit(Config& c);

/// Expert counts under any of the names in use (num_experts, num_local_experts or n_routed_experts;
/// num_experts_per_tok or its synonyms) and their width under the family's.
MoeSpec read_experts(Config& c, std::string_view width_key);
inline MoeSpec read_experts(Config& c) { return read_experts(c, "moe_intermediate_size"); }
/// The same where a family has names of its own for more.
struct ExpertKeys {
  std::string_view width = "moe_intermediate_size";
  std::string_view experts = "num_experts";
  std::string_view chosen = "num_experts_per_tok";
};
MoeSpec read_experts(Config& c, const ExpertKeys& keys);
/// Sigmoid scores, a correction bias that selects, groups, renormalised and scaled weights
/// (DeepSeek's noaux_tc), under any of the names in use.
void read_noaux_tc(Config& c, MoeSpec& moe);

/// One entry per layer from `key`, each one of `known`. Absent: every interval-th layer (counting
/// from 1) is `periodic`, the others `usual`.
struct LayerTypes {
  std::string key;
  std::string usual;
  std::string periodic;
  int64_t interval = 1;
};
std::vector<std::string> read_layer_types(Config& c, int64_t num_layers, const LayerTypes& types);

/// A list of whole numbers, one a layer.
std::vector<int64_t> read_layer_ints(Config& c, std::string_view key, int64_t num_layers);
/// A list with an entry a layer, and some behind the last layer's for those that predict further
/// tokens. Empty where the list is, or is absent.
std::vector<Json> read_layer_entries(Config& c, std::string_view key, int64_t num_layers);
/// Gated units by a list with the limit of each layer; 0 and null are none, and so is no list.
std::vector<GluOptions> read_capped_units(Config& c, std::string_view key, int64_t num_layers);
/// Sets the layers whose numbers a list has, or `absent` where there is none; others are passed
/// over.
void mark_listed_layers(Config& c, std::string_view key, std::vector<bool>& layers,
                        std::vector<int64_t> absent = {});

/// The numbers of layer `i` alone in per_layer_config, where transformers pads numbers of layers.
Config object_of_layer(Config& per_layer, size_t i);
/// The layers that have a dense feed-forward network instead of experts: mlp_layer_types ("dense"
/// or "sparse"), else the first first_k_dense_replace, `usual` where a config says neither.
std::vector<bool> read_dense_layers(Config& c, int64_t num_layers, int64_t usual = 0);
/// n_shared_experts (or num_shared_experts) experts in one network of their summed width, `usual`
/// where a config does not say how many.
void read_shared_experts(Config& c, MoeSpec& moe, int64_t usual = 1);
/// The network of a model without experts: intermediate_size, and mlp_bias of all its projections.
void read_dense_network(Config& c, LayerSpec& layer);
/// Layers like `layer`: dense ones of dense_size, or of intermediate_size, the others with `moe`.
std::vector<LayerSpec> make_layers(LayerSpec layer, const MoeSpec& moe,
                                   const std::vector<bool>& dense, int64_t dense_size);
std::vector<LayerSpec> make_layers(Config& c, LayerSpec layer, const MoeSpec& moe,
                                   const std::vector<bool>& dense);
/// The window of a hybrid model, `usual` where a config does not mention it; 0 and null are none.
inline int64_t read_window(Config& c, int64_t usual) {
  return c.int_or("sliding_window", c.mentions("sliding_window") ? 0 : usual, {0, 1 << 30});
}
/// Where a hybrid model attends to a window: layer_types ("sliding_attention" or "full_attention").
std::vector<bool> read_sliding_layers(Config& c, int64_t num_layers);
/// The same where a config without layer_types has a window in all but each `interval`-th layer.
std::vector<bool> read_sliding_pattern(Config& c, int64_t num_layers, int64_t interval);
/// Rotary positions of a hybrid model, in which layers with windows have their own.
struct RopeByWindow {
  RopeSpec full;
  RopeSpec sliding;
};
/// The default bases, and the key of that of windows where rope_parameters do not have either kind.
struct RopeBases {
  std::string_view local_theta_key;
  double theta = 1e4;
  double local_theta = 1e4;
};
/// rope_parameters by the type of a layer; or rope_theta and rope_scaling, which are those of
/// layers that see all.
RopeByWindow read_rope_by_window(Config& c, int64_t head_dim, const RopeBases& bases);
/// Layers like `layer` with attention of either kind.
std::vector<LayerSpec> layers_by_window(LayerSpec layer, AttentionSpec attention,
                                        const RopeByWindow& rope, const std::vector<bool>& sliding,
                                        int64_t window);
/// Where whoever loads the model asks for it: `layer`, behind the others, predicts further tokens.
/// `key` counts such layers, of which the first is read.
void read_draft_layer(Config& c, ModelSpec& spec, std::string_view key, LayerSpec layer);
/// Closes the reading: the config's first problem, or the spec with the keys nobody read.
Result<ModelSpec> finish_spec(Config& c, ModelSpec spec);

/// The number to add to the norm weights of models with layers of Gated DeltaNet. Hugging Face
/// stores them as w of (1 + w) and convolutions as [channels, 1, taps]; MLX stores 1 + w and
/// [channels, taps, 1]. One convolution tells for the whole model.
float zero_centred_norm_add(const WeightStore& weights, int64_t num_layers);

/// The usual prefixes of names: "language_model.model.", "model.language_model.", "model." and
/// none, for the trunk and for the head.
std::vector<std::string> usual_prefixes();

}  // namespace moeflux
