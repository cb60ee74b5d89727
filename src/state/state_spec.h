// The state of a layer for a sequence, as its mixer asks for it: tensors of each token, of a window
// of tokens, or of a fixed size. Memory plans, checkpoints, snapshots and prefixes follow
// from this alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace moeflux {

enum class StateExtent : uint8_t {
  kPerToken,  // one `shape` a token, in pages
  kFixed,     // one `shape`, which every step updates in place; zeros at first
};

struct StateTensor {
  StateExtent extent = StateExtent::kPerToken;
  Shape shape;
  /// kF32; where the tensor is per token also kF16, or kI8: rows of quant/q8_rows.h.
  DType dtype = DType::kF32;
  /// Later tokens read only the last `window` tokens, their own among them; 0 means all. 0 unless
  /// per token.
  int64_t window = 0;
  /// A later token reads no more than so many of them, whichever they are; 0: all. 0 unless per
  /// token.
  int64_t tokens_read = 0;
  /// A step writes from so many positions before its first token on. 0 unless per token.
  int64_t behind = 0;

  /// The shape is [heads, width], and operations read and write each head by itself: devices may
  /// have some of the heads each. False unless per token.
  bool has_own_heads = false;

  int64_t num_own_heads() const { return has_own_heads ? shape[0] : 1; }
  bool is_per_token() const { return extent == StateExtent::kPerToken; }
  /// The bytes of `shape`: of one token, or of the whole.
  uint64_t bytes() const;
  /// The first position that the token at `length` and those after it may read.
  int64_t first_read(int64_t length) const;
  /// The bytes that evaluating `length` tokens left behind and later tokens may read.
  uint64_t bytes_after(int64_t length) const;

  /// Whether both hold the same: how much of it is read does not matter.
  friend bool operator==(const StateTensor& a, const StateTensor& b) {
    return a.extent == b.extent && a.shape == b.shape && a.dtype == b.dtype && a.window == b.window;
  }
};

/// A layer's tensors; the mixer knows which is which. May be empty.
struct LayerStateSpec {
  std::vector<StateTensor> tensors;

  uint64_t bytes_per_token() const;
  uint64_t bytes_fixed() const;
  uint64_t bytes_after(int64_t length) const;
  /// The bytes that the step of token `length` - 1 reads.
  uint64_t bytes_seen(int64_t length) const;

  friend bool operator==(const LayerStateSpec&, const LayerStateSpec&) = default;
};

/// "F16 [2, 128] a token, the last 512; F32 [3, 64]"; "nothing".
std::string to_string(const LayerStateSpec& layer);

}  // namespace moeflux
