#include "backend/encoder.h"

namespace moeflux {

// Nobody asks unless the device says that it copies beside.
CopyId Encoder::copy_beside(std::span<const BufferCopy> /*copies*/, EventId /*after*/) {
  MF_CHECK(false);
  return {};
}
void Encoder::await_copies(CopyId /*last*/) { MF_CHECK(false); }
bool Encoder::has_copied(CopyId /*last*/) {
  MF_CHECK(false);
  return true;
}

void Encoder::gated_ffn(Tensor out, Tensor x, const GluWeights& weights, Tensor out_gate,
                        const GluOptions& options) {
  ScratchScope scope(*this);
  const Shape intermediate{x.dim(0), weights.gate.rows};
  const Tensor gate = scratch(intermediate, DType::kF32);
  const Tensor up = scratch(intermediate, DType::kF32);
  const bool is_own_gate = weights.gate == weights.up;
  linear(gate, x, weights.gate);
  if (!is_own_gate) linear(up, x, weights.up);
  glu(gate, gate, is_own_gate ? gate : up, options);
  linear(out, gate, weights.down);
  if (!out_gate.is_null()) mul_activated(out, out, out_gate, Activation::kSigmoid);
}

void Encoder::latent_attention(Tensor out, Tensor q, Tensor latent, Tensor positions,
                               std::span<const KvRows> sequences, const LatentHeads& heads) {
  ScratchScope scope(*this);
  const int64_t n = q.dim(0);
  const int64_t num_heads = q.dim(1);
  const int64_t rank = heads.v_up.cols;
  const int64_t rope_dim = latent.dim(1) - rank;
  const Tensor q_nope = q.slice(2, 0, q.dim(2) - rope_dim);
  const Tensor q_rope = q.slice(2, q.dim(2) - rope_dim, rope_dim);
  const Tensor compressed = latent.slice(1, 0, rank);
  rms_norm(compressed, compressed, heads.norm, heads.norm_eps);
  if (rope_dim > 0) {
    const Tensor k_rope = latent.slice(1, rank, rope_dim).split_last(rope_dim);
    rope(q_rope, positions, heads.inverse_frequencies, heads.rope);
    rope(k_rope, positions, heads.inverse_frequencies, heads.rope);
  }
  const Tensor query = scratch({n, num_heads, rank + rope_dim}, DType::kF32);
  const Tensor query_latent = query.slice(2, 0, rank);
  if (heads.k_up_is_transposed) {
    head_linear(query_latent, q_nope, heads.k_up, heads.k_rows);
  } else {
    head_linear_transposed(query_latent, q_nope, heads.k_up, heads.k_rows);
  }
  if (rope_dim > 0) copy(query.slice(2, rank, rope_dim), q_rope);
  const Tensor mixed = scratch({n, num_heads, rank}, DType::kF32);
  attention(mixed, query, latent.split_last(rank + rope_dim), Tensor{}, sequences,
            {.scale = heads.scale, .selected = heads.selected});
  head_linear(out, mixed, heads.v_up, heads.v_rows);
}

}  // namespace moeflux
