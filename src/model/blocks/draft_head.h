// The surroundings of a layer that predicts further tokens (multi-token prediction, MTP): its input
// is made of a token's state and of the token behind it, and a norm of its own is in front of the
// model's head. States carry the last token's state to the step that knows the token behind it.
#pragma once

#include "model/model_spec.h"
#include "model/weights/weight_store.h"
#include "state/step_batch.h"

namespace moeflux::blocks {

struct DraftHead {
  Tensor embedding_norm;
  Tensor hidden_norm;
  Weight combine;  // [hidden, 2 * hidden]: of the embedding, then of the state
  // Instead of it [hidden, hidden], where the state is several streams.
  Weight of_embedding;
  Weight of_hidden;
  Tensor final_norm;
};

/// Claims enorm, hnorm, shared_head.norm and eh_proj, or e_proj and h_proj, below the layer.
DraftHead take_draft_head(WeightStore& weights, LayerId layer, const ModelSpec& spec,
                          float norm_add);

/// out [n, hidden] = the layer's input, from the embedding of the token behind each row and from
/// the row's state, both [n, hidden], which are overwritten.
void combine_draft(Encoder& e, const ModelSpec& spec, const DraftHead& head, Tensor out,
                   Tensor embedded, Tensor hidden);
/// The same where the model has several streams, which get the embedding each: out and hidden
/// [n, streams * hidden].
void combine_draft_streams(Encoder& e, const ModelSpec& spec, const DraftHead& head, Tensor out,
                           Tensor embedded, Tensor hidden);

/// Copies x [n, width] into the layer's states, at the batch's positions of a tensor that is kept
/// for each token.
void store_rows(Encoder& e, StepBatch& batch, LayerId layer, size_t tensor, Tensor x);
/// The inverse: out [n, width] from there.
void load_rows(Encoder& e, StepBatch& batch, LayerId layer, size_t tensor, Tensor out);

}  // namespace moeflux::blocks
