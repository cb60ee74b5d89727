// Attention of queries to keys and values, which it appends to the cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/operation.h"
#include "backend/sequence_rows.h"

namespace moeflux {

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
  /// f32 [heads], [n, heads] or null: an extra logit per head, not scaled, that takes part in the
  /// softmax's denominator and contributes no value.
  Tensor sinks = {};
  /// f32 [n, heads, extent], contiguous, or null: number d of a row is added to the scaled q . k of
  /// the key d positions before the query; nothing is from `extent` on. Without selected and pooled
  /// keys.
  Tensor distance_bias = {};
  /// The choice of the same rows as q; without a window.
  KeySelection selected = {};
  /// With one kv head, whose keys are its values, and a window that is not chunked.
  PooledKeys pooled = {};
};

namespace ops {

/// Appends k [n, kv_heads, head_dim] and v [n, kv_heads, v_head_dim] to each sequence's cache at
/// its kv.length. Then q [n, heads, head_dim] attends, causally, to what each token sees of its own
/// sequence; query head h reads kv head h / (heads / kv_heads). A null v means that the pages of
/// values are views of the pages of keys. out [n, heads, v_head_dim]. With selected keys, groups
/// divide kv_heads; a token that attends to keys 0 to m - 1 of a selection has the bits of one at
/// position m - 1 whose cache holds these keys alone. Pooled keys are appended as select_keys()
/// does; a token that attends to m keys, those of pools before those of tokens, has such bits too.
struct Attention {
  static constexpr std::string_view kName = "attention";
  Tensor out;
  Tensor q;
  Tensor k;
  Tensor v;
  std::span<const KvRows> sequences;
  AttentionOptions options;

  Status check() const;
  Cost cost() const;
  std::string text() const;
  int64_t rows() const { return q.dim(0); }
  /// Sequence number i alone: part(x) gives its rows of x.
  template <typename Part>
  Attention part(size_t i, const Part& part) const {
    AttentionOptions own = options;
    own.selected.ids = part(options.selected.ids);
    if (options.sinks.shape.rank() == 2) own.sinks = part(options.sinks);
    own.distance_bias = part(options.distance_bias);
    own.pooled.keys = part(options.pooled.keys);
    own.pooled.ids = part(options.pooled.ids);
    if (!options.pooled.is_null()) own.pooled.sequences = options.pooled.sequences.subspan(i, 1);
    return {part(out), part(q), part(k), part(v), sequences.subspan(i, 1), own};
  }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "q", q);
    visit(Use::kRead, "k", k);
    visit_if(visit, Use::kRead, "v", v);
    for (const KvRows& s : sequences) {
      for (const Tensor& page : s.kv.k_pages) visit(Use::kUpdate, "keys", page);
      for (const Tensor& page : s.kv.v_pages) visit(Use::kUpdate, "values", page);
    }
    for (const KvRows& s : options.pooled.sequences) {
      for (const Tensor& page : s.kv.k_pages) visit(Use::kUpdate, "pooled", page);
    }
    visit_if(visit, Use::kRead, "sinks", options.sinks);
    visit_if(visit, Use::kRead, "distance_bias", options.distance_bias);
    visit_if(visit, Use::kRead, "selected", options.selected.ids);
    visit_if(visit, Use::kRead, "pooled_keys", options.pooled.keys);
    visit_if(visit, Use::kRead, "pooled_ids", options.pooled.ids);
  }
};

}  // namespace ops
}  // namespace moeflux
