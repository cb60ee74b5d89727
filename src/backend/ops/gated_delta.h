// The gated delta rule.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/operation.h"
#include "backend/sequence_rows.h"

namespace moeflux {

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

namespace ops {

/// The gated delta rule over each sequence's tokens in order. qkv [n, 2 * key_heads * key_dim +
/// value_heads * value_dim] holds q | k | v after the convolution; q and k are l2-normalised (eps
/// 1e-6 on the sum), q scaled by key_dim^-0.5. a [n, options.decays()], b [n, value_heads]; a_log
/// f32 [value_heads], dt_bias f32 [options.decays()]; decay = exp(-exp(a_log) * softplus(a +
/// dt_bias)), or as options.decay_bound says, of the whole state or of each of its rows; beta =
/// sigmoid(b). Per value head i, with key head options.key_head_of(i):
///   S = decay * S;  S += k (beta * (v - S^T k))^T;  out = S^T q.
/// out [n, value_heads, value_dim]; states f32 [value_heads, key_dim, value_dim] are updated.
struct GatedDelta {
  static constexpr std::string_view kName = "gated_delta";
  Tensor out;
  Tensor qkv;
  Tensor a;
  Tensor b;
  Tensor a_log;
  Tensor dt_bias;
  std::span<const StateRows> sequences;
  GatedDeltaOptions options;

  Status check() const;
  Cost cost() const;
  std::string text() const;
  int64_t rows() const { return qkv.dim(0); }
  /// Sequence number i alone: part(x) gives its rows of x.
  template <typename Part>
  GatedDelta part(size_t i, const Part& part) const {
    return {part(out), part(qkv), part(a), part(b), a_log, dt_bias, sequences.subspan(i, 1),
            options};
  }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "qkv", qkv);
    visit(Use::kRead, "a", a);
    visit(Use::kRead, "b", b);
    visit(Use::kRead, "a_log", a_log);
    visit(Use::kRead, "dt_bias", dt_bias);
    for (const StateRows& s : sequences) visit(Use::kUpdate, "state", s.state);
  }
};

}  // namespace ops
}  // namespace moeflux
