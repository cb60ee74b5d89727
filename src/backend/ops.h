// Plain data that operations take beside their tensors. Shared by every backend; no behaviour.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "base/ids.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace moeflux {

enum class Activation : uint8_t {
  kSilu,
  kSigmoid,
  kGeluTanh,
  kIdentity,
  kRelu,
  kCappedSilu,  // of gated units alone
  kSoftplus,    // log(1 + e^x)
};

/// A gated unit: (clamp(up, -limit, limit) + up_offset) * g * sigmoid(alpha * g) with
/// g = min(gate, limit) for kSilu; gelu_tanh(gate) * up for kGeluTanh and relu(gate) * up for
/// kRelu, which know no clamp; min(silu(gate), limit) * clamp(up, -limit, limit) for kCappedSilu.
/// The defaults are SwiGLU; gpt-oss sets alpha 1.702, limit 7, up_offset 1. A network without a
/// gate whose unit is relu(up)^2 has kRelu and up for its gate.
struct GluOptions {
  Activation activation = Activation::kSilu;  // kSilu, kGeluTanh, kRelu or kCappedSilu
  float alpha = 1.0f;
  float limit = std::numeric_limits<float>::infinity();
  float up_offset = 0.0f;

  bool operator==(const GluOptions&) const = default;
  bool is_plain_silu() const {
    return activation == Activation::kSilu && alpha == 1.0f && up_offset == 0.0f &&
           limit == std::numeric_limits<float>::infinity();
  }
};

struct RopeOptions {
  int64_t rotary_dim = 0;  // the first rotary_dim elements of a head rotate, the rest pass through
  bool interleaved = false;       // pairs (2i, 2i + 1) instead of (i, i + rotary_dim / 2)
  float attention_factor = 1.0f;  // multiplies cos and sin (YaRN)
  int64_t unit = 1;               // heads turn by the last position that is a multiple of it

  bool operator==(const RopeOptions&) const = default;
};

/// Keys and values of one layer and one sequence, in pages of page_tokens. The token at position t
/// lies in page (t / page_tokens) % k_pages.size(): a layer with a window keeps a ring of pages
/// that covers the window and the step. Pages are f32, or, where Device::takes_narrow_cache(), f16
/// or I8: whole rows of quant/q8_rows.h, for heads whose keys and values are multiples of 32. Then
/// attention sees its own tokens' keys and values rounded too. Pages of keys and of values have one
/// type, unless Device::takes_mixed_cache(). Pages may be strided views, and values the first
/// elements of the keys: latent attention has the same pages for both.
struct KvView {
  std::span<const Tensor> k_pages;  // each [page_tokens, kv_heads, head_dim, or bytes of a row]
  std::span<const Tensor> v_pages;  // each [page_tokens, kv_heads, v_head_dim or more]
  int64_t page_tokens = 0;
  int64_t length = 0;  // tokens stored before this step; the op stores n more behind them
};

/// Rows of a step that are consecutive tokens of one sequence, with that sequence's keys and
/// values. In a list, rows lie behind those of the sequences before; together they are all of the
/// step's.
struct KvRows {
  int64_t rows = 0;
  KvView kv;
};

/// The same with a state that a recurrent op updates in place.
struct StateRows {
  int64_t rows = 0;
  Tensor state;
};

/// The keys that each token of a step attends to, where it sees more candidates than `most`. Query
/// heads are divided evenly into as many runs as there are groups, each with a choice of its own.
struct KeySelection {
  /// i32 [n, groups, most], or null: no selection. Candidates, ascending. Rows of tokens that see
  /// no more than `most` hold nothing: these tokens attend to all they see.
  Tensor ids = {};
  /// Candidate c is the tokens [c * unit, (c + 1) * unit), as far as a token sees them. Where unit
  /// is more than 1, a token's last candidate is always chosen.
  int64_t unit = 1;
  /// The last candidate of a token is the one behind those that it sees whole, and may be empty;
  /// otherwise it is its own.
  bool whole = false;
  /// False: of whole candidates there is none behind those that are seen whole.
  bool tail = true;

  bool is_null() const { return ids.is_null(); }
  int64_t groups() const { return ids.dim(1); }
  int64_t most() const { return ids.dim(2); }
  /// Tokens at positions before it attend to all they see.
  int64_t dense_end() const {
    return whole ? (tail ? most() : most() + 1) * unit - 1 : most() * unit;
  }
  /// The rows before dense_end(), of a sequence whose first one is at `position`.
  int64_t dense_rows(int64_t rows, int64_t position) const {
    return std::clamp<int64_t>(dense_end() - position, 0, rows);
  }
  /// The keys of a token at a position that is not: the same number in every group.
  int64_t keys_at(int64_t position) const {
    const int64_t others = (most() - 1) * unit;
    return whole ? others + (position + 1) % unit : others + position % unit + 1;
  }
  KeySelection slice(int64_t row, int64_t rows) const {
    return is_null() ? *this : KeySelection{ids.slice(0, row, rows), unit, whole, tail};
  }
};

/// How keys are chosen. A token's score is the sum over the group's index heads, in order, of
/// weight * max(0, q . k), or of q . k without weights unless `relu`; a candidate's is the best of
/// those of its tokens that the choosing token sees. Ties go to the lower candidate; what is no
/// number stands before all others, as plus infinity does.
struct SelectOptions {
  int64_t unit = 1;  // tokens of a candidate
  /// The token's last candidate and those before it that are chosen whatever their scores: at least
  /// one where unit is more than 1.
  int64_t recent = 0;
  /// A candidate has one key, of its tokens together, and is seen once its last token is; the
  /// tokens behind those are the last candidate, without a key. `recent` is 1 then; or 0, and there
  /// is no last candidate.
  bool whole = false;
  bool relu = false;  // without weights, max(0, q . k) counts

  bool has_tail() const { return !whole || recent > 0; }
  KeySelection selection(const Tensor& ids) const { return {ids, unit, whole, has_tail()}; }
  /// Tokens that share a key.
  int64_t key_tokens() const { return whole ? unit : 1; }
  /// All that the token at `position` has, its last one among them.
  int64_t candidates_at(int64_t position) const {
    return (whole ? position + 1 : position) / unit + (has_tail() ? 1 : 0);
  }
};

/// By what pool_rows() weighs tokens.
struct PoolGates {
  Tensor gate = {};  // f32 [n, cols], or null: all weigh the same
  Tensor bias = {};  // f32 [unit, cols], with a gate
  /// With a gate: a row has two halves, and a pool also has the tokens of the pool before. The
  /// first halves of these count, and the second ones of its own tokens.
  bool overlaps = false;

  /// Rows of a sequence's state.
  int64_t kept_rows(int64_t unit) const { return overlaps ? 2 * unit : unit - 1; }
};
/// Tokens of a pool, at most.
constexpr int64_t kPoolMax = 128;

/// A residual of several streams, for each of n tokens: what they get of a branch's result, and how
/// they mix. f32 and contiguous.
struct StreamGates {
  Tensor write = {};  // [n, streams]
  Tensor mix = {};    // [n, streams, streams], or null: streams do not mix, and write has logits
};

/// How read_streams() makes them, and the gates that it reads by.
struct StreamGateOptions {
  Tensor scale = {};       // f32 [3], of read, write and mix; [1] where there is read alone
  Tensor base = {};        // f32 [(2 + streams) * streams]: those of read | write | mix; [streams]
  int64_t iterations = 1;  // of divisions by sums
  float eps = 0.0f;
};
/// Streams of a residual, at most.
constexpr int64_t kStreamsMax = 5;

/// How root_dots() makes a number of a product.
struct RootDotOptions {
  float scale = 1.0f;
  float least = 0.0f;  // under the root
};

struct ConvOptions {
  Activation activation = Activation::kSilu;  // kSilu or kIdentity
  Tensor bias = {};                           // f32 [channels] or null: added before it
};

/// The first position that the one at `position` sees: AttentionOptions says what the others mean.
inline int64_t first_seen(int64_t position, int64_t window, bool chunked) {
  if (window == 0) return 0;
  return chunked ? position - position % window : std::max<int64_t>(0, position + 1 - window);
}

/// Keys of pools of `unit` tokens beside those of tokens, and like these their own values. A token
/// sees those whose last token is not behind it.
struct PooledKeys {
  /// Null: none. [n, 1, head_dim], the key of each token's pool so far: of these the rows of pools'
  /// last tokens so far are looked at.
  Tensor keys = {};
  /// The same rows as those of the tokens' keys. Pages are [page_tokens, 1, head_dim / unit], and a
  /// pool's key lies in the rows of its tokens.
  std::span<const KvRows> sequences = {};
  int64_t unit = 1;
  /// i32 [n, 1, most], ascending: those that a token attends to which sees more than `most`. Null:
  /// all of them.
  Tensor ids = {};

  bool is_null() const { return keys.is_null(); }
  int64_t seen_at(int64_t position) const { return (position + 1) / unit; }
  /// Whether the token at `position` attends to its ids alone.
  bool chooses_at(int64_t position) const {
    return !ids.is_null() && seen_at(position) > ids.dim(2);
  }
  /// The keys that it attends to.
  int64_t count_at(int64_t position) const {
    return chooses_at(position) ? ids.dim(2) : seen_at(position);
  }
};

struct AttentionOptions {
  float scale = 1.0f;  // multiplies q . k
  /// A token sees itself and the window - 1 before it; 0 means all.
  int64_t window = 0;
  /// A token sees itself and those before it down to a multiple of `window` instead.
  bool chunked = false;
  /// f32 [heads], or null: an extra logit per head, not scaled, that takes part in the softmax's
  /// denominator and contributes no value.
  Tensor sinks = {};
  /// The choice of the same rows as q; without a window.
  KeySelection selected = {};
  /// With one kv head, whose keys are its values, and a window that is not chunked.
  PooledKeys pooled = {};
};

/// The rows of a matrix by head: head h owns rows [h * head_stride + row_begin, +
/// rows_per_head).
struct HeadRows {
  int64_t head_stride = 0;
  int64_t row_begin = 0;
  int64_t rows_per_head = 0;
};

/// Latent attention in absorbed form: the matrices that take queries to the latents of a sequence,
/// and mixed latents to values.
struct LatentHeads {
  Tensor norm;  // f32 [rank], of the latents
  float norm_eps = 0.0f;
  Tensor inverse_frequencies;  // f32 [rotary_dim / 2]
  RopeOptions rope;            // of the last columns of queries and keys
  /// Per head, nope_dim rows over the latent; or the latent's rows over nope_dim columns.
  Weight k_up;
  HeadRows k_rows;
  bool k_up_is_transposed = false;  // the latter
  Weight v_up;                      // per head, v_dim rows over the latent
  HeadRows v_rows;
  float scale = 1.0f;  // multiplies q . k
  KeySelection selected = {};
};

struct GatedDeltaOptions {
  int64_t key_heads = 0;
  int64_t value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  /// The value heads of a key head are key_heads apart (GGUF), not side by side.
  bool tiled_value_heads = false;
  /// Each row of a head's state decays at a rate of its own (Kimi delta attention): a and dt_bias
  /// have key_dim numbers a head.
  bool row_decay = false;
  /// Not 0: the logarithm of a decay lies between this and 0. It is then
  /// decay_bound * sigmoid(exp(a_log) * (a + dt_bias)).
  float decay_bound = 0.0f;

  /// Numbers of a row of a, and of dt_bias.
  int64_t decays() const { return row_decay ? value_heads * key_dim : value_heads; }
  int64_t heads_per_key() const { return value_heads / key_heads; }
  /// Value heads side by side that share a key head.
  int64_t heads_together() const { return tiled_value_heads ? 1 : heads_per_key(); }
  int64_t key_head_of(int64_t value_head) const {
    return value_head / heads_together() % key_heads;
  }
  /// Value head `i` of those of a key head.
  int64_t value_head_of(int64_t key_head, int64_t i) const {
    return tiled_value_heads ? i * key_heads + key_head : key_head * heads_per_key() + i;
  }
};

/// Weights of each head of a selective scan, f32 [heads].
struct ScanWeights {
  Tensor a_log;
  Tensor dt_bias;
  Tensor skip;
};

struct ScanOptions {
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t groups = 0;  // of heads side by side that share B and C; divides heads
  int64_t state_dim = 0;

  int64_t group_of(int64_t head) const { return head / (heads / groups); }
  /// Numbers of a row of x | B | C.
  int64_t row_width() const { return heads * head_dim + 2 * groups * state_dim; }
};

enum class RouterScore : uint8_t { kSoftmax, kSigmoid, kSqrtSoftplus };
/// How a group of experts is judged in group-limited selection.
enum class GroupScore : uint8_t { kMax, kTopTwoSum };

/// From logits to routes: p = score(logits); c = p + correction_bias; the topk_group best groups
/// keep their c, the others get 0; top_k of c; weights are p of the chosen, normalised, scaled.
struct RouterOptions {
  RouterScore score = RouterScore::kSoftmax;
  Tensor correction_bias = {};  // f32 [experts] or null: selects, never weighs
  int64_t num_groups = 1;       // divides experts
  int64_t groups_kept = 1;
  GroupScore group_score = GroupScore::kMax;
  /// Divide the chosen weights by max(their sum + normalize_epsilon, normalize_least).
  bool normalize = true;
  float normalize_epsilon = 0.0f;
  float normalize_least = 0.0f;
  float scale = 1.0f;        // multiplies the chosen weights
  Tensor expert_scale = {};  // f32 [experts] or null: multiplies each chosen weight
  /// i32 [vocab, top_k] or null: the experts of each token, whatever their scores; in one group and
  /// without a correction.
  Tensor table = {};
  Tensor token_ids = {};  // i32 [n], with a table: its rows
};

/// How many of a row's greatest values top_rows() gives at most.
constexpr int64_t kTopRowsMax = 64;

/// The experts of each token, best first. Ties in score go to the lower expert id.
struct Routes {
  Tensor ids;      // i32 [tokens, top_k]
  Tensor weights;  // f32 [tokens, top_k]
};

/// A gated network: down(glu(gate x, up x)).
struct GluWeights {
  Weight gate;  // [intermediate, hidden]
  Weight up;    // [intermediate, hidden]
  Weight down;  // [hidden, intermediate]
};

/// One expert's matrices in fast memory.
struct ExpertWeights {
  ExpertId expert{};
  Weight gate;  // [moe_intermediate, hidden]
  Weight up;    // [moe_intermediate, hidden]
  Weight down;  // [hidden, moe_intermediate]
  // Biases have a plain float dtype and are added to the products; null when the family has none.
  Tensor gate_bias = {};  // [moe_intermediate]
  Tensor up_bias = {};    // [moe_intermediate]
  Tensor down_bias = {};  // [hidden]
};

}  // namespace moeflux
