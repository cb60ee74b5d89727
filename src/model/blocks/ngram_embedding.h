// An n-gram embedding: rows of a table that a token and those before it choose, as keys and a value
// for the streams of a residual, and a convolution of what each stream gets.
#pragma once

#include "base/ids.h"
#include "model/model.h"
#include "model/weights/weight_store.h"

namespace moeflux::blocks {

/// Weights of one layer's; null where it has none.
struct NgramWeights {
  Weight key;    // of the rows, for each stream; where there is no convolution the value too
  Weight value;  // of the rows
  Tensor key_norm;
  Tensor query_norm;
  Tensor conv_norm;  // all three [streams, hidden_size]
  Tensor conv;       // taps with zeros between
  size_t state = 0;  // the tensor of the layer's state that the convolution has

  bool is_null() const { return key.rows == 0; }
};

/// Claims "layers.N.ple", or "layers.N.engram" where there is no convolution. `norm_add` is added
/// to weights of norms.
NgramWeights take_ngram_embedding(WeightStore& weights, LayerId layer, const ModelSpec& spec,
                                  float norm_add);

/// Adds to the streams [tokens, streams, hidden_size]. Fails as RowLookup does.
Status add_ngram_embedding(const ForwardStep& step, LayerId layer, const ModelSpec& spec,
                           const NgramWeights& weights, Tensor streams);

}  // namespace moeflux::blocks
