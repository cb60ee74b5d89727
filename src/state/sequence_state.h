// What one sequence remembers, layer by layer: pages of keys and values, or a recurrent state.
// Memory is allocated as the sequence grows, never inside a step, and may be shared by several
// states until one of them writes to it. Thread-compatible, together with the states it shares
// memory with.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/device.h"
#include "backend/encoder.h"
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
  /// The first position that the token at `length` and those after it may read.
  int64_t first_read(int64_t length) const;

  friend bool operator==(const LayerStateSpec&, const LayerStateSpec&) = default;
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

  /// The same state again, sharing all memory. Costs no work on the device.
  std::unique_ptr<SequenceState> share() const;

  /// Tokens evaluated so far.
  int64_t length() const { return length_; }
  int64_t num_layers() const { return static_cast<int64_t>(layers_.size()); }
  const LayerStateSpec& spec(LayerId layer) const { return at(layer).spec; }

  /// Makes room for tokens up to `length`, and copies what is shared and about to be written. Call
  /// before a step. Fails with kResourceExhausted; what was remembered stays. Where it leaves with
  /// std::bad_alloc, nothing can be truncated to, and the state must not be used for anything else.
  Status reserve(int64_t length, Encoder& encoder);
  /// The step that appended n tokens in every layer has been recorded.
  void advance(int64_t n) {
    length_ += n;
    in_step_ = false;
  }

  /// True when every layer still holds what evaluating the first `length` tokens left behind.
  /// `length` is at most length(). After a reserve() without its advance(), recurrent states count
  /// as lost.
  bool can_truncate(int64_t length) const;
  /// Forgets the tokens from `length` on, which can_truncate().
  void truncate(int64_t length);
  /// The least length to which a state that was restored from a snapshot of `length` tokens can be
  /// truncated: 0, or `length` itself.
  static int64_t shortest_truncation(std::span<const LayerStateSpec> layers, int64_t length);

  KvView key_value(LayerId layer) const;
  DeltaStateView gated_delta(LayerId layer) const;

  /// Bytes of a layer as snapshots hold it: keys, then values, each [tokens, heads, dim], of the
  /// tokens that later ones may read (LayerStateSpec::first_read); or convolution, then delta.
  static uint64_t layer_bytes(const LayerStateSpec& spec, int64_t length);
  /// Waits for the device. `into` has layer_bytes().
  Status read_layer(Encoder& encoder, LayerId layer, std::span<std::byte> into) const;
  /// The first `length` tokens of a state of `of`: at least its shortest_truncation().
  struct Part {
    int64_t length = 0;
    int64_t of = 0;
  };
  /// Fills an empty state with part of another, whose layers[i] has layer_bytes(). Fails with
  /// kResourceExhausted or the encoder's error; the state is of no use then.
  Status fill(Encoder& encoder, Part part, std::span<const std::span<const std::byte>> layers);

  /// Bytes of all it holds, shared or not.
  uint64_t size_bytes() const;
  /// Pages a layer holds for a sequence of `length` tokens.
  static int64_t pages_needed(const LayerStateSpec& layer, int64_t length, int64_t step_tokens_max);

 private:
  /// Device memory: one page of a layer, or one layer's recurrent state.
  using Block = std::shared_ptr<Buffer>;

  struct Layer {
    LayerStateSpec spec;
    std::vector<Block> blocks;    // of each page; or one, of the recurrent state
    std::vector<Tensor> k_pages;  // views of blocks
    std::vector<Tensor> v_pages;
    DeltaStateView delta;
    int64_t held_from = 0;  // a ring has overwritten the tokens before it
  };

  SequenceState(Device& device, std::vector<LayerStateSpec> layers, int64_t step_tokens_max);
  SequenceState(const SequenceState&) = default;
  const Layer& at(LayerId layer) const { return layers_[static_cast<size_t>(index(layer))]; }
  Result<Block> allocate(const LayerStateSpec& spec);
  static void view_page(Layer& layer, size_t page);
  static void view_delta(Layer& layer);
  Status grow(Layer& layer, int64_t length);
  Status reserve_layers(int64_t length, Encoder& encoder);
  Status own_pages(Layer& layer, int64_t length, Encoder& encoder);
  Status own_delta(Layer& layer, Encoder& encoder);
  template <typename Visit>
  static Status visit_pieces(const Layer& layer, Part part, const Visit& visit);

  Device& device_;
  std::vector<Layer> layers_;
  int64_t step_tokens_max_;
  int64_t length_ = 0;
  bool in_step_ = false;  // reserved, not advanced: recurrent states may have moved
  bool torn_ = false;     // reserve() did not return: layers may be of different lengths
};

}  // namespace moeflux
