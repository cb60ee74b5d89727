// The decoder most families share: embedding, then per layer x += mixer(norm(x)), x +=
// ffn(norm(x)), a final norm and a head. A layer may have one of the two alone, or both may see one
// norm. Families differ in their spec and in the names of their weights.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "model/blocks/moe.h"
#include "model/model.h"
#include "model/weights/weight_store.h"

namespace moeflux::blocks {

/// Names below "layers.N.".
struct DecoderNames {
  // All three are empty where reading the residual norms it.
  std::string input_norm = "input_layernorm";
  // In its place where queries, keys and values have inputs of their own.
  std::array<std::string, 3> input_norms = {"q_input_norm", "k_input_norm", "v_input_norm"};
  std::string ffn_norm = "post_attention_layernorm";  // else empty: it sees what the mixer sees
  std::string final_norm = "norm";                    // below no layer
  std::string embedding_norm = "";  // below no layer; empty: without weights, where there is one
  // Convolutions of what attention and the network add, where LayerSpec has them.
  std::string attention_out_conv = "attn_sconv";
  std::string ffn_out_conv = "mlp_sconv";
  std::string out_scale = "mlp.gate.global_scale";
  std::string dense_out_scale = "mlp.global_scale";
  /// Norms of what attention and the feed-forward network add to the residual; empty: none.
  std::string attention_out_norm = "";
  std::string ffn_out_norm = "";
  std::string moe_out_norm = "";  // the latter where it is in layers with experts alone
  std::string moe = "mlp";        // holds experts or switch_mlp
  std::string dense = "mlp";
  std::string router = "mlp.gate";
  std::string correction_bias = "mlp.gate.e_score_correction_bias";
  std::string shared = "mlp.shared_experts";
  std::string shared_gate = "mlp.shared_expert_gate";
  std::string latent_in = "mlp.fc1_latent_proj";  // of latent experts
  std::string latent_out = "mlp.fc2_latent_proj";
  std::string latent_norm = "mlp.pre_expert_norm";
  std::string expert_norm = "mlp.experts.post_expert_norm";
  std::string latent_out_norm = "mlp.routed_expert_norm";
  std::string table = "mlp.gate.tid2eid";  // of experts by token
};

struct DecoderOptions {
  DecoderNames names;
  float norm_add = 0.0f;  // 1 where norms are stored as w of (1 + w); never for a gated norm
  std::optional<float> final_norm_add = {};  // of the last norm; empty: the same
  bool plain_attention_out_norm = false;     // of no weights, in place of a named one
  bool ffn_out_norm_scales_first = false;    // multiplies by its weights, then norms
};

/// Whether weights has "layers.N.`name`" for a layer of the spec. Files of one family that have
/// other names are told apart by it.
bool any_layer_has(const ModelSpec& spec, const WeightStore& weights, std::string_view name);

/// Claims all weights of the spec.
std::unique_ptr<Model> make_decoder(const ModelSpec& spec, WeightStore& weights,
                                    const DecoderOptions& options);
/// The same without options.
std::unique_ptr<Model> make_decoder(const ModelSpec& spec, WeightStore& weights);

}  // namespace moeflux::blocks
