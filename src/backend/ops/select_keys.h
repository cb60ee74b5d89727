// The choice of the keys that tokens attend to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/operation.h"
#include "backend/ops/attention.h"

namespace moeflux {

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

namespace ops {

/// Appends k [n, 1, dim] to each sequence's pages of keys, then chooses ids.dim(2) candidates for
/// each token and group. KeySelection says what ids are, SelectOptions how q [n, index_heads, dim]
/// and head_weights f32 [n, index_heads], or null, judge candidates. The index heads are divided
/// evenly into as many runs as ids has groups. Pages of keys are f32 or f16. Nobody looks at pages
/// of values. Whole candidates have their key in the rows of their tokens: pages are [page_tokens,
/// 1, dim / unit], and of k only the rows of the last tokens so far of candidates are looked at.
///
/// `within` is what an earlier choice found, among candidates of a multiple of the tokens and in
/// one group: a token that chose there has no candidates but those in the ones it chose, which must
/// be at least ids.dim(2).
struct SelectKeys {
  static constexpr std::string_view kName = "select_keys";
  Tensor ids;
  Tensor q;
  Tensor k;
  Tensor head_weights;
  std::span<const KvRows> sequences;
  SelectOptions options;
  KeySelection within = {};

  Status check() const;
  Cost cost() const;
  std::string text() const;
  int64_t rows() const { return q.dim(0); }
  /// Whether the token at `position` has the candidates of an earlier choice alone.
  bool is_within(int64_t position) const {
    return !within.is_null() && position >= within.dense_end();
  }
  /// Sequence number i alone: part(x) gives its rows of x.
  template <typename Part>
  SelectKeys part(size_t i, const Part& part) const {
    SelectKeys own{part(ids), part(q), part(k), part(head_weights), sequences.subspan(i, 1),
                   options,   within};
    own.within.ids = part(within.ids);
    return own;
  }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "ids", ids);
    visit(Use::kRead, "q", q);
    visit(Use::kRead, "k", k);
    visit_if(visit, Use::kRead, "head_weights", head_weights);
    visit_if(visit, Use::kRead, "within", within.ids);
    for (const KvRows& s : sequences) {
      for (const Tensor& page : s.kv.k_pages) visit(Use::kUpdate, "keys", page);
    }
  }
};

}  // namespace ops
}  // namespace moeflux
