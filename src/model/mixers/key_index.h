// The index of sparse attention: a few heads of its own judge the keys that a token sees, and
// attention is left to the best. Its keys are state of their own, for each token or, pooled, for
// each candidate.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/ops/attention.h"
#include "model/config/rope.h"
#include "model/mixer.h"
#include "model/mixers/query_scale.h"
#include "quant/weight.h"

namespace moeflux {

struct ForwardStep;
class WeightStore;

struct KeyIndexSpec {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t groups = 1;    // index heads that choose together are num_heads / groups
  int64_t selected = 0;  // candidates
  int64_t unit = 1;      // tokens of a candidate
  int64_t recent = 0;    // of the candidates, the last ones that are always chosen
  bool pooled = false;   // a candidate has one key, pooled of its tokens, once it is whole
  /// Raw keys are kept for each token, not in a state of a fixed size: a layer that predicts
  /// further tokens evaluates tokens again that it has passed. For means alone.
  bool keeps_tokens = false;
  /// Pooled keys are means of raw ones, normed behind that and turned by the position of their
  /// first token. Heads count alike, and never for less than nothing.
  bool means = false;
  RopeSpec rope;            // of the first columns of a head; of none: positions do not count
  bool turns_last = false;  // of the last columns instead
  float norm_eps = 1e-6f;   // of the norm with a bias; that of the references, unless they say so
  /// Queries come from the layer's input through a norm with a bias, and grow with the logarithm of
  /// their position.
  bool logarithmic = false;

  /// Adds the tensors of a layer's state.
  void add_state(const CacheTypes& types, std::vector<StateTensor>& tensors) const;
  KeySelection selection(const Tensor& ids) const { return {ids, unit, pooled}; }
  /// Room for the choice of n tokens.
  Shape ids_shape(int64_t n) const { return {n, groups, selected}; }
  /// Tokens that a later one reads at most.
  int64_t tokens_read() const { return selected * unit; }
};

struct KeyIndexWeights {
  Weight q;  // of an index of means whose k is null, queries | keys
  Weight k;
  Weight head_weights;  // null: heads are not weighted
  Tensor q_norm;        // null: none
  Tensor input_norm;    // of logarithmic queries, and its bias
  Tensor input_bias;
  LogScale growth;
  Tensor k_norm;
  Tensor k_bias;  // null: the norm of keys keeps their mean, and adds nothing
  float eps = 0.0f;
  Tensor inverse_frequencies;
  Weight pool_gate;  // of pooled keys
  Tensor pool_bias;
};

/// DeepSeek's: queries from `query_width` columns, keys through a norm with a bias, weighted heads.
KeyIndexWeights take_weighted_index(WeightStore& weights, const KeyIndexSpec& spec,
                                    const MixerPlace& place, int64_t query_width);
/// MiniMax's: queries from the layer's input, RMS norms of queries and keys.
KeyIndexWeights take_normed_index(WeightStore& weights, const KeyIndexSpec& spec,
                                  const MixerPlace& place);

/// Qwen4's: queries and raw keys from the layer's input in one matrix or in two, RMS norms of
/// queries and means.
KeyIndexWeights take_mean_index(WeightStore& weights, const KeyIndexSpec& spec,
                                const MixerPlace& place);

struct KeyIndexInput {
  Tensor queries_from;
  Tensor x;           // the layer's input
  size_t tensor = 0;  // of the layer's state, the first of add_state()
};
/// Records the choice of the step's tokens into `ids`, of ids_shape().
void choose_keys(const ForwardStep& step, LayerId layer, const KeyIndexSpec& spec,
                 const KeyIndexWeights& weights, const KeyIndexInput& input, Tensor ids);

}  // namespace moeflux
