// The memory of one sequence: the tensors of every layer's LayerStateSpec, those per token in
// pages. It is allocated as the sequence grows, never inside a step, and may be shared by
// several states until one of them writes to it. Thread-compatible, together with the states it
// shares memory with.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/device.h"
#include "backend/encoder.h"
#include "backend/sequence_rows.h"
#include "base/ids.h"
#include "base/result.h"
#include "state/block_supply.h"
#include "state/state_memory.h"
#include "state/state_spec.h"

namespace moeflux {

class SequenceState {
 public:
  static constexpr int64_t kPageTokens = 256;

  /// `step_tokens_max` bounds the tokens of one step: a window's ring of pages covers both.
  /// Fails with kResourceExhausted. The device must outlive the state.
  static Result<std::unique_ptr<SequenceState>> create(Device& device,
                                                       std::vector<LayerStateSpec> layers,
                                                       int64_t step_tokens_max);
  /// The same in memory that other states take from too. With an encoder, which then clears it,
  /// memory that others gave back is used again.
  static Result<std::unique_ptr<SequenceState>> create(std::shared_ptr<StateMemory> memory,
                                                       std::vector<LayerStateSpec> layers,
                                                       int64_t step_tokens_max,
                                                       Encoder* encoder = nullptr);

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
  /// The same for rows that one layer's tensors with StateTensor::behind get at positions `begin`
  /// to `end`, which the next step overwrites: length() stays, and what other layers remember. At
  /// most a step's tokens.
  Status reserve_rows(LayerId layer, int64_t begin, int64_t end, Encoder& encoder);
  /// Replaces the memory of one layer by that of `other`, a state of the same layers.
  void share_layer(LayerId layer, const SequenceState& other) {
    layers_[static_cast<size_t>(index(layer))] = other.at(layer);
  }
  /// The step that appended n tokens in every layer has been recorded.
  void advance(int64_t n) {
    length_ += n;
    in_step_ = false;
  }

  /// True when every layer still holds what evaluating the first `length` tokens left behind.
  /// `length` is at most length(). After a reserve() without its advance(), tensors of a fixed size
  /// count as lost.
  bool can_truncate(int64_t length) const;
  /// Forgets the tokens from `length` on, which can_truncate().
  void truncate(int64_t length);
  /// The least length to which a state that was restored from a snapshot of `length` tokens can be
  /// truncated: 0, or `length` itself.
  static int64_t shortest_truncation(std::span<const LayerStateSpec> layers, int64_t length);

  /// A tensor of each token, as pages [kPageTokens, shape...]: the token at position t lies in page
  /// (t / kPageTokens) % pages.size().
  std::span<const Tensor> pages(LayerId layer, size_t tensor) const;
  Tensor fixed(LayerId layer, size_t tensor) const;
  /// Keys in tensor 0 of the layer and values in tensor 1; or both in tensor 0, if it is the only
  /// one, the values being the first elements of the keys.
  KvView key_value(LayerId layer) const;
  /// Keys and values in these tensors of the layer, which may be one.
  KvView key_value(LayerId layer, size_t keys, size_t values) const;

  /// Bytes of a layer as snapshots hold it: its tensors in order, each [tokens, shape...] of the
  /// tokens that later ones may read (StateTensor::first_read), or [shape...].
  static uint64_t layer_bytes(const LayerStateSpec& spec, int64_t length) {
    return spec.bytes_after(length);
  }
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
  /// Bytes that a layer holds for a sequence of `length` tokens: whole pages of them, or a ring.
  static uint64_t bytes_held(const LayerStateSpec& layer, int64_t length, int64_t step_tokens_max);

 private:
  using Block = BlockSupply::BlockPtr;

  struct Held {
    StateTensor spec;
    LayerId layer{};
    std::vector<Block> blocks;
    std::vector<Tensor> views;  // of blocks
    int64_t held_from = 0;      // a ring has overwritten the tokens before it
  };
  struct Layer {
    LayerStateSpec spec;
    std::vector<Held> tensors;
  };

  SequenceState(std::shared_ptr<StateMemory> memory, std::vector<LayerStateSpec> layers,
                int64_t step_tokens_max);
  SequenceState(const SequenceState&) = default;
  const Layer& at(LayerId layer) const { return layers_[static_cast<size_t>(index(layer))]; }
  /// Rows that are about to be written.
  struct Rows {
    int64_t begin = 0;
    int64_t end = 0;
    bool only_behind = false;  // of tensors with StateTensor::behind alone
    bool comes_near = false;   // what every step reads, out of the host's memory
  };
  /// A block that they need: a further one, or in place of one that others share or that is far.
  struct Need {
    size_t block = 0;
    bool is_read = false;  // what it takes the place of
    size_t more = 1;       // this one and further ones of the tensor
  };
  bool comes_near() const;
  template <typename Use>
  Status visit_needs(Held& held, const Rows& rows, const Use& use) const;
  Status renew(std::span<Layer> layers, const Rows& rows, Encoder* encoder);
  Status renew(Held& held, const Rows& rows, BlockSupply& supply);
  std::optional<BlockSupply::Kind> kind_of(const Held& held, const Need& need) const;
  Result<Block> find_block(const Held& held, const Need& need, BlockSupply& supply,
                           std::vector<Block>& rest);
  static void view_block(Held& held, size_t block);
  template <typename Visit>
  static Status visit_pieces(const Held& held, Part part, const Visit& visit);

  std::shared_ptr<StateMemory> memory_;
  std::vector<Layer> layers_;
  int64_t step_tokens_max_;
  int64_t length_ = 0;
  bool in_step_ = false;  // reserved, not advanced: what has a fixed size may have moved
  bool torn_ = false;     // reserve() did not return: layers may be of different lengths
};

}  // namespace moeflux
