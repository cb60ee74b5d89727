// Arguments of the kernels that choose keys, and their table. Plain data, as kernel_table.h.
#pragma once

#include <cstdint>

namespace moeflux::cpu {

/// Keys of a panel, at most.
constexpr int64_t kIndexPanelKeys = 32;

/// Scores of the keys [begin, end) for some tokens, each of the keys that it sees and of no other:
/// a sum over the heads of a group in order of weight * max(0, q . k), or of q . k or max(0, q .
/// k).
struct IndexScoresArgs {
  const float* q;
  int64_t q_token_stride;
  int64_t q_stride;      // between heads
  const float* weights;  // of the first token, [heads]; or null
  int64_t weight_stride;
  bool relu;  // without weights, max(0, q . k) counts
  int64_t tokens;
  int64_t heads;
  int64_t heads_per_group;
  int64_t position;    // of the first token
  int64_t key_tokens;  // a token sees the keys of all that many tokens up to its own
  int64_t begin;
  int64_t end;                    // at most (position + tokens) / key_tokens
  const uint8_t* const* k_pages;  // key k lies in page (k / page_keys) % pages
  bool keys_are_f16;              // otherwise f32
  int64_t pages;
  int64_t page_keys;
  int64_t k_stride;  // bytes between keys of a page
  int64_t head_dim;
  float* workspace;  // [head_dim rounded up to 16, kIndexPanelKeys], on a cache line border
  /// From `begin` on; up to kIndexPanelKeys more than asked are written.
  float* out;
  int64_t out_token_stride;
  int64_t out_group_stride;
};

/// The best of a row of more than `most` candidates, in ascending order, with the last `recent`
/// ones among them whatever their scores.
struct ChooseArgs {
  const float* scores;  // numbers; no negative zeros
  int64_t candidates;
  int64_t most;
  int64_t recent;
  int32_t* ids;        // [most]
  int32_t* workspace;  // [candidates]
};

/// A row of a pool, as pool_rows() defines it.
struct PoolArgs {
  const float* const* x;       // [count]
  const float* const* gates;   // [count]; null: all weigh the same
  const float* const* biases;  // [count], with gates
  int64_t count;
  int64_t n;
  float* out;
};

/// One instruction set's implementation. Constant data.
struct SelectKernels {
  void (*index_scores)(const IndexScoresArgs& args);
  /// to[c] = the best of the scores [c * unit, (c + 1) * unit), of which there are `count` in all.
  void (*best_of_units)(float* to, const float* scores, int64_t count, int64_t unit);
  void (*choose_best)(const ChooseArgs& args);
  /// out = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight.
  void (*layer_norm)(float* out, const float* x, const float* weight, int64_t n, float eps);
  void (*pool)(const PoolArgs& args);
};

extern const SelectKernels kGenericSelect;
extern const SelectKernels kAvx2Select;
extern const SelectKernels kAvx512Select;
extern const SelectKernels kNeonSelect;

}  // namespace moeflux::cpu
