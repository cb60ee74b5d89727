// Model: a network whose weights are in place. Knows layers; knows nothing of requests, sampling or
// files.
#pragma once

#include <cstdint>
#include <span>

#include "backend/encoder.h"
#include "base/result.h"
#include "experts/expert_store.h"
#include "model/layer_source.h"
#include "model/model_spec.h"
#include "model/row_lookup.h"
#include "state/step_batch.h"

namespace moeflux {

/// Sees the residual, for tests: after the embedding (0) and each layer i (i + 1), but for the last
/// one after the final norm. Several streams are seen after it too, side by side; the norm is next.
class HiddenObserver {
 public:
  virtual ~HiddenObserver() = default;
  virtual void hidden_state(Encoder& encoder, int64_t layer, Tensor hidden) = 0;
};

/// Keys and values of a step that a layer lends to later ones, and what it has chosen.
struct LentKeys {
  Tensor k;  // f32 [n, kv_heads, head_dim], as they are cached; or latents [n, latent_dim]
  Tensor v;  // f32 [n, kv_heads, v_head_dim]; null beside latents; beside entries, their index keys
  Tensor ids;           // of entries, as PooledKeys has them
  KeySelection within;  // larger candidates to which later choices keep
};

/// n tokens, appended to what the states of their sequences remember.
struct ForwardStep {
  Encoder& encoder;
  Tensor token_ids;  // i32 [n]
  Tensor positions;  // i32 [n]
  StepBatch& batch;  // of n rows
  ExpertStore& experts;
  HiddenObserver* observer = nullptr;
  RowLookup* rows = nullptr;      // of tables that stay on a drive; null in a dry run
  LayerSource* layers = nullptr;  // null where all of them are in memory
  /// The choice of the last layer with an index, for layers that share it; the model's own.
  KeySelection* selection = nullptr;
  /// f32 [n, router_hidden_size], what a router leaves to the next one's; the model's own. Null
  /// where none does.
  Tensor carried = {};
  /// By layer, null tensors for those that lend none; the model's own.
  std::span<LentKeys> lent = {};

  /// Before a layer's first operation.
  Status begin_layer(LayerId layer) const {
    return layers == nullptr ? Status() : layers->begin_layer(layer, encoder);
  }
  /// Records a layer's network for every token.
  Status network(LayerId layer, const ops::GatedFfn& op) const {
    if (layers != nullptr) return layers->network(layer, op, encoder);
    encoder.run(op);
    return {};
  }
};

/// Rows of the layer that predicts further tokens. Row i of the step is the token behind the one at
/// positions[i], of which it also sees what the text's layers gave.
struct DraftRows {
  /// That, f32 [n, hidden_size]; null: as forward() has left it in the states.
  Tensor hidden = {};
  /// The layer's result, in its place for the next token, f32 [n, hidden_size]; null: nobody
  /// wants it. May be `hidden`.
  Tensor out = {};
};

/// Immutable once created; forward() keeps its state in the step.
class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelSpec& spec() const = 0;
  /// Records the step. `logits` is f32 [batch.logits_rows(), vocab_size], or a null tensor where no
  /// row wants any. Does not advance the states. Fails when experts or layers cannot be read; the
  /// states are then unusable.
  virtual Status forward(const ForwardStep& step, Tensor logits) const = 0;
  /// Records rows of the layer that predicts further tokens, of which the spec must have one: the
  /// batch has their positions. `logits` is f32 [n, vocab_size] of the tokens two behind the
  /// positions, or null. Fails as forward() does.
  virtual Status draft(const ForwardStep& step, const DraftRows& rows, Tensor logits) const;
};

}  // namespace moeflux
