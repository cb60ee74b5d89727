// A network as plain data: the family reads it from config.json, everything else is built from it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/activation.h"
#include "backend/ops/route.h"
#include "model/mixer.h"
#include "model/ngram.h"
#include "state/state_spec.h"

namespace moeflux {

/// False for networks of two matrices, whose unit is relu(up)^2: up is its own gate.
inline bool has_gate(const GluOptions& glu) { return glu.activation != Activation::kRelu; }

struct MoeSpec {
  int64_t num_experts = 0;  // 0: the layer has no routed experts
  int64_t experts_per_token = 0;
  int64_t moe_intermediate_size = 0;
  /// Experts see this many numbers, which one projection makes of x and another takes back; 0: x.
  int64_t latent_size = 0;
  float latent_norm_eps = 0.0f;  // not 0: a norm of (1 + w) of these numbers
  bool latent_out_norm = false;  // of the sum of experts, before it is taken back
  /// Not 0: what an expert gives is multiplied by (1 + w) and then normed, before it is weighed.
  float expert_norm_eps = 0.0f;
  int64_t shared_intermediate_size = 0;  // 0: no shared expert
  float out_multiplier = 1.0f;           // of what routed and shared experts add up to
  bool shared_gate = false;  // the shared expert is multiplied by sigmoid(shared_expert_gate x)
  bool correction_bias = false;
  bool corrects_logits = false;  // the bias is added to logits; the best sums are chosen
  /// Added to the bias, so that experts of groups that are left out, which count as 0, never come
  /// first.
  float correction_add = 0.0f;
  /// The weight of a token's only expert multiplies what goes into it, not what comes out.
  bool weighs_input = false;
  /// Not 0: a table of as many tokens lists the experts of each.
  int64_t listed_tokens = 0;
  bool router_bias = false;
  bool expert_bias = false;
  /// Not 0: router logits become cap * tanh(logit / cap) before they are scored.
  float router_soft_cap = 0.0f;
  float router_multiplier = 1.0f;  // of router logits, before that
  RouterOptions router;
  GluOptions glu;
  std::optional<GluOptions> shared_glu;  // of the shared expert; empty: the same
  /// So many shared experts of moe_intermediate_size, which have no other: the router scores them
  /// behind the routed ones, and a token's weights are those of the chosen and these together.
  int64_t weighed_shared = 0;
  bool out_scale = false;  // what experts add up to is multiplied by a number of the layer
  /// Not 0: a network of that width scores experts, whose input is passed from router to router
  /// (blocks/carried_router.h).
  int64_t router_hidden_size = 0;
  float router_norm_eps = 0.0f;  // of that network
  /// Behind the experts the router scores one that gives nothing: a token may choose to skip them.
  bool skips = false;

  /// The number of logits that the router gives.
  int64_t num_scored() const { return num_experts + weighed_shared + (skips ? 1 : 0); }
};

/// An embedding of a token and those before it, which a layer with several streams adds to them
/// before its mixer.
struct NgramEmbeddingSpec {
  NgramSpec rows;
  int64_t conv_taps = 0;  // 0: no convolution, and one matrix makes keys and the value
  int64_t conv_step = 1;  // tokens from one tap to the next

  bool is_none() const { return rows.is_none(); }
  /// Tokens before its own that a tap reaches.
  int64_t conv_past() const { return conv_taps == 0 ? 0 : (conv_taps - 1) * conv_step; }
};

struct LayerSpec {
  NgramEmbeddingSpec ngrams;
  std::shared_ptr<const MixerSpec> mixer;
  MoeSpec moe;
  int64_t per_layer_width = 0;  // of an embedding of its own that a token has in the layer; 0: none
  int64_t dense_intermediate_size = 0;  // 0: no dense feed-forward network
  bool dense_bias = false;              // of all projections of that network
  GluOptions dense_glu;
  bool dense_out_scale = false;  // as MoeSpec::out_scale
  /// Not 0: what the mixer and the network add goes through x + conv(x) first, a convolution of so
  /// many taps each.
  int64_t out_conv_taps = 0;
  bool out_conv_scaled = false;  // and is divided by the root of the number of its terms
  /// 3: queries, keys and values read the residual by themselves and have norms of their own.
  int64_t mixer_inputs = 1;
  /// A later pass over that layer: a mixer's state alone, weights and network are that layer's.
  /// Below 0: none.
  int64_t pass_over = -1;

  bool has_network() const { return moe.num_experts > 0 || dense_intermediate_size > 0; }
};

/// A residual of several streams, which branches read from, write to and mix by gates that they
/// make of the streams (manifold-constrained hyper-connections), or read from and write to alone
/// (independent ones). Or which none mixes: a gate for each number, of `gate_rank`, says what is
/// read of normed streams.
struct StreamSpec {
  int64_t count = 1;       // 1: none of it
  int64_t gate_rank = 0;   // 0: gates for streams alone
  int64_t iterations = 1;  // of divisions by which a mix comes near to keep sums; 0: none mixes
  float eps = 0.0f;
  float magnitude = 2.0f;  // of gates of writing
  /// The last norm sees a sum that gates weigh, not the mean.
  bool gated_end = false;
  /// A branch reads by the gates that the one before it has made, and the last norm by the last
  /// ones; the first branch reads the first stream.
  bool reads_late = false;
};

/// A residual that begins anew with each block of layers. Branches, and the last norm, read what
/// attention of a token to its state and to those at earlier blocks' ends gives.
struct BlockResidualSpec {
  int64_t layers = 0;  // of a block; 0: none of it
  /// Inkling-2's: a query for each reader, scores divided by the root of the width, sums of normed
  /// states.
  bool sums_normed = false;
};

/// Layers [begin, end) that run `passes` times, whole blocks of a BlockResidualSpec. A later pass
/// begins with the state before the first one, and its branches get messages from the states of the
/// pass before, by gates of `gate_rank`. Its layers lie behind the model's others, pass by pass.
struct LoopSpec {
  int64_t begin = 0;
  int64_t end = 0;  // begin: none of it
  int64_t passes = 1;
  int64_t gate_rank = 0;

  int64_t size() const { return end - begin; }
};

struct ModelSpec {
  std::string model_type;
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-6f;
  /// Norms of the residual subtract its mean first (layer norms without bias).
  bool norms_subtract_mean = false;
  /// Norms before mixers and experts multiply what they give by sigmoid(up silu(down it)), where
  /// down is of that rank; 0: they do not.
  int64_t norm_gate_rank = 0;
  float out_norm_eps = 0.0f;      // of norms of what branches add; 0: rms_norm_eps
  bool for_short_texts = false;   // see RopeSpec
  bool norms_hold_one = false;    // files have 1 + w where the publisher has w
  bool embedding_norm = false;    // of the embedding
  int64_t padded_vocab_size = 0;  // rows that files have; 0: vocab_size
  bool tie_word_embeddings = false;
  float logit_soft_cap = 0.0f;  // 0: none
  float embedding_multiplier = 1.0f;
  float residual_multiplier = 1.0f;  // of what layers add
  float logit_multiplier = 1.0f;
  bool depth_scaled_residual = false;  // see residual_stream.cc
  bool scaled_residual = false;        // the same
  bool head_bias = false;              // of the head: "lm_head.bias"
  /// Not 0: a residual weighs what layers add by sigmoid(gate / temperature) of each number.
  float residual_gate_temperature = 0.0f;
  StreamSpec streams;
  BlockResidualSpec block_residual;
  LoopSpec loop;
  std::vector<LayerSpec> layers;
  /// The last of `layers`, where it was asked for: it predicts a further token from what the others
  /// give (blocks/draft_head.h). 0 or 1.
  int64_t draft_layers = 0;
  std::vector<std::string> unread_keys;  // of config.json: nobody knows what they mean

  /// Layers of later passes count too.
  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  /// Layers with weights of their own.
  int64_t num_own_layers() const { return num_layers() - (loop.passes - 1) * loop.size(); }
  /// Layers that a token passes before its logits.
  int64_t num_text_layers() const { return num_layers() - draft_layers; }
  /// Numbers of a token that draft layers take from the layers before them.
  int64_t draft_width() const { return streams.count * hidden_size; }
};

/// The mixer as that kind, or null where it is another.
template <typename Spec>
const Spec* mixer_as(const LayerSpec& layer) {
  return dynamic_cast<const Spec*>(layer.mixer.get());
}

/// The first layer's mixer of that kind; null when the model has none.
template <typename Spec>
const Spec* first_mixer(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    if (const Spec* mixer = mixer_as<Spec>(layer)) return mixer;
  }
  return nullptr;
}

/// The experts of the last layer that has some; of no experts where none has.
const MoeSpec& last_moe(const ModelSpec& spec);

/// State that each layer keeps for a sequence.
std::vector<LayerStateSpec> state_specs(const ModelSpec& spec, const CacheTypes& types = {});

}  // namespace moeflux
