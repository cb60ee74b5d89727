// Model: a network whose weights are in place. Knows layers; knows nothing of requests, sampling or
// files.
#pragma once

#include <cstdint>

#include "backend/encoder.h"
#include "base/result.h"
#include "experts/expert_store.h"
#include "model/model_spec.h"
#include "state/sequence_state.h"

namespace moeflux {

/// Sees the residual stream, for tests against a reference: after the embedding (layer 0), after
/// each layer i (i + 1), the last one after the final norm.
class HiddenObserver {
 public:
  virtual ~HiddenObserver() = default;
  virtual void hidden_state(Encoder& encoder, int64_t layer, Tensor hidden) = 0;
};

/// n tokens of one sequence, appended to what its state remembers.
struct ForwardStep {
  Encoder& encoder;
  Tensor token_ids;  // i32 [n]
  Tensor positions;  // i32 [n]
  SequenceState& state;
  ExpertStore& experts;
  HiddenObserver* observer = nullptr;
};

/// Immutable once created; forward() keeps its state in the step.
class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelSpec& spec() const = 0;
  /// Records the step. `logits` is f32 [rows, vocab_size]: of the last `rows` tokens, or a null
  /// tensor for none. Does not advance the state. Fails when experts cannot be read; the state is
  /// then unusable.
  virtual Status forward(const ForwardStep& step, Tensor logits) const = 0;
};

}  // namespace moeflux
