// Latent attention in absorbed form.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/operation.h"
#include "backend/ops/attention.h"
#include "backend/ops/head_linear.h"
#include "backend/ops/rope.h"

namespace moeflux {

class Encoder;

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
  int64_t window = 0;  // AttentionOptions say what these two mean
  Tensor sinks = {};
  bool are_made = false;  // the latents are normed and turned already; norm is null
};

namespace ops {

/// Norms the latents' first columns and turns the others and those of q, both in place, appends the
/// latents to the cache, attends with every head's query over latents and takes the result to
/// values. q [n, heads, nope_dim + rope_dim], whose rotary part may be left as it was; latent [n,
/// rank + rope_dim]; positions i32 [n]; out [n, heads, v_dim]; pages of values are views of the
/// pages of keys. Takes scratch for [n, heads, 2 * rank + rope_dim]; made of other operations
/// unless a device knows better.
struct LatentAttention {
  static constexpr std::string_view kName = "latent_attention";
  Tensor out;
  Tensor q;
  Tensor latent;
  Tensor positions;
  std::span<const KvRows> sequences;
  LatentHeads heads;

  Status check() const;
  Cost cost() const;
  std::string text() const;
  void compose(Encoder& encoder) const;
  int64_t rows() const { return q.dim(0); }
  /// Sequence number i alone: part(x) gives its rows of x.
  template <typename Part>
  LatentAttention part(size_t i, const Part& part) const {
    LatentHeads own = heads;
    own.selected.ids = part(heads.selected.ids);
    return {part(out), part(q), part(latent), part(positions), sequences.subspan(i, 1), own};
  }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kUpdate, "q", q);
    visit(Use::kUpdate, "latent", latent);
    visit(Use::kRead, "positions", positions);
    for (const KvRows& s : sequences) {
      for (const Tensor& page : s.kv.k_pages) visit(Use::kUpdate, "keys", page);
      for (const Tensor& page : s.kv.v_pages) visit(Use::kUpdate, "values", page);
    }
    visit_if(visit, Use::kRead, "norm", heads.norm);
    visit_if(visit, Use::kRead, "inverse_frequencies", heads.inverse_frequencies);
    visit(Use::kRead, "k_up", heads.k_up);
    visit(Use::kRead, "v_up", heads.v_up);
    visit_if(visit, Use::kRead, "selected", heads.selected.ids);
    visit_if(visit, Use::kRead, "sinks", heads.sinks);
  }
};

}  // namespace ops
}  // namespace moeflux
