// Plain data that operations take beside their tensors. Shared by every backend; no behaviour.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace moeflux {

enum class Activation : uint8_t { kSilu, kSigmoid };

struct RopeOptions {
  int64_t rotary_dim = 0;  // the first rotary_dim elements of a head rotate, the rest pass through
  bool interleaved = false;       // pairs (2i, 2i + 1) instead of (i, i + rotary_dim / 2)
  float attention_factor = 1.0f;  // multiplies cos and sin (YaRN)
};

/// Keys and values of one layer and one sequence, in pages of page_tokens.
struct KvView {
  std::span<const Tensor> k_pages;  // each f32 [page_tokens, kv_heads, head_dim]
  std::span<const Tensor> v_pages;  // each f32 [page_tokens, kv_heads, v_head_dim]
  int64_t page_tokens = 0;
  int64_t length = 0;  // tokens stored before this step; the op stores n more behind them
};

struct AttentionOptions {
  float scale = 1.0f;  // multiplies q . k
};

/// State of one gated DeltaNet layer and one sequence. Updated in place.
struct DeltaStateView {
  Tensor conv;   // f32 [kernel - 1, channels]: the last inputs of the convolution, oldest first
  Tensor delta;  // f32 [value_heads, key_dim, value_dim]
};

struct GatedDeltaOptions {
  int64_t key_heads = 0;
  int64_t value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
};

enum class RouterScore : uint8_t { kSoftmax };

struct RouterOptions {
  RouterScore score = RouterScore::kSoftmax;
  bool normalize = true;  // divide the chosen weights by their sum
  float scale = 1.0f;     // multiplies the chosen weights
};

/// Which experts each token goes to, best first. Ties in score go to the lower expert id.
struct Routes {
  Tensor ids;      // i32 [tokens, top_k]
  Tensor weights;  // f32 [tokens, top_k]
};

/// One expert's matrices in fast memory.
struct ExpertWeights {
  ExpertId expert{};
  Weight gate;  // [moe_intermediate, hidden]
  Weight up;    // [moe_intermediate, hidden]
  Weight down;  // [hidden, moe_intermediate]
};

}  // namespace moeflux
