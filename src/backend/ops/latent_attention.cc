#include "backend/ops/latent_attention.h"

#include <algorithm>

#include "backend/encoder.h"
#include "base/format.h"

namespace moeflux::ops {

Status LatentAttention::check() const {
  Conditions c(kName);
  c.is_float("q", q).is_float("latent", latent).equal("extents of q", q.shape.rank(), 3);
  c.equal("extents of latent", latent.shape.rank(), 2);
  if (q.shape.rank() != 3 || latent.shape.rank() != 2) return c.status();
  const int64_t n = q.dim(0);
  const int64_t rank = heads.v_up.cols;
  const int64_t rope_dim = latent.dim(1) - rank;
  const int64_t nope_dim = q.dim(2) - rope_dim;
  c.equal("rows of latent", latent.dim(0), n)
      .holds("latent", latent, rope_dim >= 0 && nope_dim > 0,
             "the rank and the rotary columns of q")
      .holds("norm", heads.norm, heads.norm.is_null() == heads.are_made,
             "null where latents are made, and only there")
      .holds("rope.rotary_dim", heads.rope.rotary_dim <= std::max<int64_t>(rope_dim, 0),
             "at most the rotary columns")
      .equal("columns of k_up", heads.k_up.cols, heads.k_up_is_transposed ? nope_dim : rank)
      .equal("rows of k_up a head", heads.k_rows.rows_per_head,
             heads.k_up_is_transposed ? rank : nope_dim)
      .is("out", out, {n, q.dim(1), heads.v_rows.rows_per_head});
  if (!heads.are_made) c.has("norm", heads.norm, rank);
  if (!heads.sinks.is_null()) c.has("sinks", heads.sinks, q.dim(1));
  if (rope_dim > 0) {
    c.has("positions", positions, n, DType::kI32)
        .has("inverse_frequencies", heads.inverse_frequencies, heads.rope.rotary_dim / 2);
  }
  return c.status();
}

// The operations that it is made of have theirs.
Cost LatentAttention::cost() const { return {}; }

std::string LatentAttention::text() const {
  return formatted("latent_attention {} = {} over {} + {}", out.shape.to_string(),
                   q.shape.to_string(), latent.shape.to_string(), sequences.front().kv.length);
}

void LatentAttention::compose(Encoder& encoder) const {
  ScratchScope scope(encoder);
  const int64_t n = q.dim(0);
  const int64_t num_heads = q.dim(1);
  const int64_t rank = heads.v_up.cols;
  const int64_t rope_dim = latent.dim(1) - rank;
  const Tensor q_nope = q.slice(2, 0, q.dim(2) - rope_dim);
  const Tensor q_rope = q.slice(2, q.dim(2) - rope_dim, rope_dim);
  const Tensor compressed = latent.slice(1, 0, rank);
  if (!heads.are_made) encoder.run(RmsNorm{compressed, compressed, heads.norm, heads.norm_eps});
  if (rope_dim > 0) {
    const Tensor k_rope = latent.slice(1, rank, rope_dim).split_last(rope_dim);
    encoder.run(Rope{q_rope, positions, heads.inverse_frequencies, heads.rope});
    if (!heads.are_made) {
      encoder.run(Rope{k_rope, positions, heads.inverse_frequencies, heads.rope});
    }
  }
  const Tensor query = encoder.scratch({n, num_heads, rank + rope_dim}, DType::kF32);
  const Tensor query_latent = query.slice(2, 0, rank);
  if (heads.k_up_is_transposed) {
    encoder.run(HeadLinear{query_latent, q_nope, heads.k_up, heads.k_rows});
  } else {
    encoder.run(HeadLinearTransposed{query_latent, q_nope, heads.k_up, heads.k_rows});
  }
  if (rope_dim > 0) encoder.run(Copy{query.slice(2, rank, rope_dim), q_rope});
  const Tensor mixed = encoder.scratch({n, num_heads, rank}, DType::kF32);
  encoder.run(Attention{mixed,
                        query,
                        latent.split_last(rank + rope_dim),
                        Tensor{},
                        sequences,
                        {.scale = heads.scale,
                         .window = heads.window,
                         .sinks = heads.sinks,
                         .selected = heads.selected}});
  encoder.run(HeadLinear{out, mixed, heads.v_up, heads.v_rows});
}

}  // namespace moeflux::ops
