// The surroundings of a layer that predicts further tokens (multi-token prediction, MTP): its input
// is made of a token's state and of the token behind it, and a norm of its own is in front of the
// model's head. States carry the last token's state to the step that knows the token behind it.
#pragma once

#include "model/model_spec.h"
#include "model/weights/weight_store.h"

namespace moeflux::blocks {

struct DraftHead {
  Tensor embedding_norm;
  Tensor hidden_norm;  // [hidden], of each stream alone, or [streams * hidden], of all as one
  Weight combine;      // [hidden, 2 * hidden]: of the embedding, then of the state
  // Its halves [hidden, hidden] instead, as checkpoints with several streams have them.
  Weight of_embedding;
  Weight of_hidden;
  Tensor final_norm;  // null where reading the residual norms it
};

/// Claims enorm, hnorm, shared_head.norm and eh_proj, or e_proj and h_proj, below the layer.
DraftHead take_draft_head(WeightStore& weights, LayerId layer, const ModelSpec& spec,
                          float norm_add);

/// out [n, streams * hidden] = the layer's input, from the embedding [n, hidden] of the token
/// behind each row, which every stream gets, and from the row's state, as `out`. Both are
/// overwritten.
void combine_draft(Encoder& e, const ModelSpec& spec, const DraftHead& head, Tensor out,
                   Tensor embedded, Tensor hidden);

}  // namespace moeflux::blocks
