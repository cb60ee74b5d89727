// The streaming heart, written once for all families and backends: route, lease, compute what is
// there while the rest arrives, combine in router order. And the feed-forward networks beside it.
#pragma once

#include <functional>
#include <string>

#include "model/blocks/carried_router.h"
#include "model/model.h"
#include "model/weights/weight_store.h"

namespace moeflux::blocks {

/// A network for every token: gate and up beside each other, or in one matrix, gate's rows first or
/// rows of both in turn.
struct FfnWeights {
  /// True when it is a GatedFfn.
  bool is_plain() const { return gate_up.is_null() && down_bias.is_null(); }

  GluWeights glu;  // up is its own gate where there is none; without gate and up where fused
  Weight gate_up;  // null where they are apart
  bool in_turn = false;
  // Null without biases, which a network with gate_up has not.
  Tensor gate_bias;
  Tensor up_bias;
  Tensor down_bias;
};

/// `prefix` has gate_proj, up_proj and down_proj (or w1, w3, w2), no gate_proj where `glu` has no
/// gate, or gate_up_proj and down_proj, or Granite's input_linear and output_linear, or Inkling's
/// w13_dn, whose rows are in turn, and w2_md.
FfnWeights take_ffn(WeightStore& weights, const std::string& prefix, int64_t hidden_size,
                    int64_t intermediate_size, const GluOptions& glu, bool bias = false);
/// out [n, hidden] from x [n, hidden], times sigmoid(out_gate [n, 1]) unless that is null.
void ffn(Encoder& e, Tensor out, Tensor x, const FfnWeights& weights, Tensor out_gate,
         const GluOptions& glu);

/// out [n, hidden] = sum over the chosen experts of x [n, hidden], given router logits [n,
/// experts], and of MoeSpec::weighed_shared or a skip behind them. Weights of shared experts go to
/// `shared_weights` [n, weighed_shared]. `while_reading` records work that needs no routed expert
/// (the shared one): it runs while misses are in flight. `expert_norm` [hidden]: the factors of
/// moe.expert_norm_eps.
Status routed_experts(const ForwardStep& step, LayerId layer, Tensor out, Tensor x,
                      Tensor router_logits, const MoeSpec& moe,
                      const std::function<void()>& while_reading = {}, Tensor expert_norm = {},
                      Tensor shared_weights = {});

/// Shared experts that the router weighs.
struct WeighedShared {
  FfnWeights in;  // gate and up of all of them, without down
  Weight down;    // [shared * hidden, intermediate], one after another
};

/// A router, its routed experts, and a shared expert with or without a gate.
struct MoeWeights {
  Weight router;
  CarriedRouter carried_router;  // in its place
  Tensor router_bias;
  float router_soft_cap = 0.0f;
  float router_multiplier = 1.0f;
  RouterOptions options;  // of the spec, with the tensors in place
  FfnWeights shared;
  WeighedShared weighed;
  float out_scale = 1.0f;
  Weight shared_gate;
  Weight latent_in;  // null where experts see x
  Weight latent_out;
  Tensor latent_norm;      // null without it
  Tensor expert_norm;      // null without it
  Tensor latent_out_norm;  // null without it
};

/// Complete names below the trunk's prefix.
struct MoeNames {
  std::string router;           // "layers.0.mlp.gate"
  std::string correction_bias;  // "layers.0.mlp.gate.e_score_correction_bias"
  std::string experts;          // "layers.0.mlp"
  std::string shared;           // "layers.0.mlp.shared_experts"
  std::string shared_gate;      // "layers.0.mlp.shared_expert_gate"
  std::string latent_in;        // "layers.0.mlp.fc1_latent_proj"
  std::string latent_out;       // "layers.0.mlp.fc2_latent_proj"
  std::string table;            // "layers.0.mlp.gate.tid2eid"
  std::string latent_norm;      // "layers.0.mlp.pre_expert_norm"
  std::string expert_norm;      // "layers.0.mlp.experts.post_expert_norm"
  std::string latent_out_norm;  // "layers.0.mlp.routed_expert_norm"
  std::string out_scale;        // "layers.0.mlp.gate.global_scale"
};

MoeWeights take_moe(WeightStore& weights, LayerId layer, const MoeNames& names, const MoeSpec& moe,
                    int64_t hidden_size);

/// The experts of each token. Where `moe` says so, the correction is added to a copy of the logits.
void choose_experts(Encoder& e, const Routes& out, Tensor logits, const MoeSpec& moe,
                    const RouterOptions& options);
RouterOptions options_for(const MoeWeights& weights, Tensor token_ids);
/// logits [n, MoeSpec::num_scored()] from x [n, hidden]. `carried` is ForwardStep's, and updated.
void router_logits(Encoder& e, Tensor logits, Tensor x, const MoeWeights& weights, Tensor carried);
/// out [n, hidden] from x [n, hidden].
Status moe(const ForwardStep& step, LayerId layer, Tensor out, Tensor x, const MoeWeights& weights,
           const MoeSpec& spec, float rms_norm_eps);

}  // namespace moeflux::blocks
