// Residual: what carries a token through a decoder's layers, how their branches read it and how
// they add to it.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/encoder.h"
#include "base/ids.h"
#include "model/model_spec.h"
#include "model/weights/weight_store.h"

namespace moeflux::blocks {

/// A branch of a layer: its mixer, or its feed-forward network.
struct Branch {
  LayerId layer{};
  bool is_network = false;
  int64_t input = 0;  // of the mixer, below LayerSpec::mixer_inputs
};

/// The residual of a step: memory that ends with the caller's scope. Has two places, so that a sum
/// and what reads it may be one launch, in which no part overwrites what another still reads.
struct ResidualStream {
  Tensor now;
  Tensor next;
  Tensor narrow;      // [tokens, hidden_size], where the others are wider
  StreamGates gates;  // of the last branch that has read
  // Where branches read by earlier gates: logits of reading, f32 [tokens, streams], by which the
  // next branch reads and which the last one has made.
  Tensor late;
  Tensor made;
  // A residual by blocks has states at their ends, f32 [blocks, tokens, hidden_size], of which
  // num_blocks are there, and branches that have been added.
  Tensor blocks;
  int64_t num_blocks = 0;
  int64_t added = 0;
  // The blocks and the last state of the pass before, where layers run several times, and room for
  // a message of them.
  Tensor past_blocks;
  Tensor past;
  Tensor message;
};

/// Weights are in place; immutable.
class Residual {
 public:
  virtual ~Residual() = default;
  virtual ResidualStream begin(Encoder& e, int64_t tokens) const = 0;
  /// Room for f32 [tokens, hidden_size]: embeddings go there before start(), and anything may once
  /// what end() gave has been looked at.
  virtual Tensor room(const ResidualStream& stream) const = 0;
  /// The embeddings have been written.
  virtual void start(Encoder& e, ResidualStream& stream) const = 0;
  /// Before the first branch of each layer.
  virtual void enter(Encoder& /*e*/, ResidualStream& /*stream*/, LayerId /*layer*/) const {}
  /// The input of the branch's norm, or of the branch where it has none, f32 [tokens, hidden_size],
  /// until the next call of any kind.
  virtual Tensor read(Encoder& e, const ResidualStream& stream, const Branch& branch) const = 0;
  /// Adds the result of the branch that has read last, which may be overwritten.
  virtual void add(Encoder& e, ResidualStream& stream, const Branch& branch,
                   Tensor result) const = 0;
  /// All that is carried, f32 [tokens, width].
  virtual Tensor whole(const ResidualStream& stream) const = 0;
  /// The input of the last norm, as read().
  virtual Tensor end(Encoder& e, const ResidualStream& stream) const = 0;
  /// The same behind the layer that predicts further tokens.
  virtual Tensor end_draft(Encoder& e, const ResidualStream& stream) const {
    return end(e, stream);
  }
  /// The state of a token that this layer gets, f32 [tokens, width]; `normed` is end() behind the
  /// last norm.
  virtual Tensor handed_on(const ResidualStream& stream, const Tensor& normed) const {
    (void)normed;
    return whole(stream);
  }
};

/// Claims "layers.N.hc_attn_fn" and the like where there are several streams,
/// "layers.N.post_attention_residual_gate.gate" and the like where a sum is gated,
/// "layers.N.post_mlp_residual_scale.residual_bias" and the like where it is scaled, and queries
/// where there are blocks. Where reading norms streams, `norm_add` is added to the norms' weights.
std::unique_ptr<Residual> make_residual(const ModelSpec& spec, WeightStore& weights,
                                        float norm_add);

}  // namespace moeflux::blocks
