// Mixer: what moves information between the tokens of a layer. A kind of mixer is a MixerSpec and a
// Mixer in one file of mixers/; nothing else lists the kinds.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/ids.h"
#include "base/json_fwd.h"
#include "base/result.h"
#include "state/state_spec.h"
#include "tensor/tensor.h"

namespace moeflux {

struct ForwardStep;
class WeightStore;

/// Element types of keys and values in a sequence's state.
struct CacheTypes {
  DType keys = DType::kF32;    // kF32, kF16, or kI8: rows of quant/q8_rows.h
  DType values = DType::kF32;  // the same
};

/// A tensor of each token with a row of `width` numbers for each of `heads`.
StateTensor cached_heads(int64_t heads, int64_t width, DType type);
/// Fails with kUnsupported where rows of `width` numbers cannot be of this type; `what` names them.
Status check_cached_heads(std::string_view what, int64_t width, DType type);

/// A mixer whose weights are in place. Immutable.
class Mixer {
 public:
  virtual ~Mixer() = default;
  /// Records out [n, hidden] from x [n, hidden], and updates the layer's state.
  virtual void forward(const ForwardStep& step, LayerId layer, Tensor out, Tensor x) const = 0;
};

/// The place of a mixer in the model, whose weights it takes.
struct MixerPlace {
  std::string layer;  // "layers.0."
  int64_t hidden_size = 0;
  float rms_norm_eps = 0.0f;
  float norm_add = 0.0f;  // added to norm weights where the checkpoint stores w of (1 + w)
};

/// A mixer as plain data: the family reads it from config.json.
class MixerSpec {
 public:
  virtual ~MixerSpec() = default;
  /// The kind: "attention".
  virtual std::string_view kind() const = 0;
  /// `types` are what has_state() allows.
  virtual LayerStateSpec state(const CacheTypes& types) const = 0;
  /// Fails with kUnsupported where keys or values have no rows of that type.
  virtual Status has_state(const CacheTypes& types) const {
    (void)types;
    return {};
  }
  /// Bytes of the keys that a token behind `tokens` lists, where a device copies them to one place
  /// that grows with the context; 0 where there is none.
  virtual uint64_t listed_bytes(int64_t tokens, const CacheTypes& types) const {
    (void)tokens;
    (void)types;
    return 0;
  }
  /// Whether later layers see what this one keeps: LentKeys.
  virtual bool lends() const { return false; }
  /// The layer whose state it reads beside its own weights and state, or -1.
  virtual int64_t reads_state_of() const { return -1; }
  /// Claims the weights below `place`.
  virtual std::unique_ptr<Mixer> take(WeightStore& weights, const MixerPlace& place) const = 0;
  /// The value of a key of config.json that would describe this mixer; null where the key says
  /// nothing of it. "layer_type" is an entry of layer_types.
  virtual Json config_value(std::string_view key) const = 0;
};

template <typename Spec>
std::shared_ptr<const MixerSpec> share_mixer(Spec spec) {
  return std::make_shared<const Spec>(std::move(spec));
}

}  // namespace moeflux
