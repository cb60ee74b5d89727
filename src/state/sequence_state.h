// What one sequence remembers, layer by layer: pages of keys and values, or a recurrent state.
// Pages are allocated as the sequence grows, never inside a step. Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/device.h"
#include "backend/ops.h"
#include "base/ids.h"
#include "base/result.h"

namespace moeflux {

enum class StateKind : uint8_t { kKeyValue, kGatedDelta };

/// What a layer needs to remember.
struct LayerStateSpec {
  StateKind kind = StateKind::kKeyValue;
  // kKeyValue
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t v_head_dim = 0;
  int64_t window = 0;           // > 0: only the last `window` tokens are ever read
  bool values_in_keys = false;  // values are the first v_head_dim elements of the keys
  // kGatedDelta
  int64_t conv_taps = 0;
  int64_t conv_channels = 0;
  int64_t value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;

  uint64_t bytes_per_token() const;  // of keys and values
  uint64_t bytes_fixed() const;      // of recurrent state
};

class SequenceState {
 public:
  /// Tokens in one key-value page.
  static constexpr int64_t kPageTokens = 256;

  /// `step_tokens_max` bounds the tokens of one step: a window's ring of pages covers both.
  /// Fails with kResourceExhausted. The device must outlive the state.
  static Result<std::unique_ptr<SequenceState>> create(Device& device,
                                                       std::vector<LayerStateSpec> layers,
                                                       int64_t step_tokens_max);

  /// Tokens evaluated so far.
  int64_t length() const { return length_; }
  /// Makes room for tokens up to `length`. Call before a step.
  Status reserve(int64_t length);
  /// The step that appended n tokens in every layer has been recorded.
  void advance(int64_t n) { length_ += n; }

  KvView key_value(LayerId layer) const;
  DeltaStateView gated_delta(LayerId layer) const;

  uint64_t size_bytes() const;
  /// Pages a layer holds for a sequence of `length` tokens.
  static int64_t pages_needed(const LayerStateSpec& layer, int64_t length, int64_t step_tokens_max);

 private:
  struct Layer {
    LayerStateSpec spec;
    std::vector<Tensor> k_pages;
    std::vector<Tensor> v_pages;
    DeltaStateView delta;
  };

  SequenceState(Device& device, std::vector<LayerStateSpec> layers, int64_t step_tokens_max);
  Result<Buffer*> allocate(uint64_t bytes);

  Device& device_;
  std::vector<Layer> layers_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  int64_t step_tokens_max_;
  int64_t length_ = 0;
};

}  // namespace moeflux
