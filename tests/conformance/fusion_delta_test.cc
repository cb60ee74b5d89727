// The delta rule of one token goes on through the norm of its heads and their gate.
#include <gtest/gtest.h>

#include "base/format.h"
#include "tests/conformance/fusion.h"
#include "tests/conformance/models.h"
#include "tests/support/one_sequence.h"

namespace moeflux::conformance {
namespace {

/// The delta rule, then the norm of its heads and their gate, all in place.
struct GatedHeadsProblem {
  DeltaProblem delta;
  bool has_gate = true;
  Activation activation = Activation::kSilu;
  bool own_out = false;  // of the norm
  std::vector<float> norm, gates;

  static GatedHeadsProblem make(Random& random, const GatedDeltaOptions& o, int64_t n) {
    return {.delta = DeltaProblem::make(random, o, n),
            .norm = random.floats(o.value_dim, 0.5f, 1.5f),
            .gates = random.floats(n * o.value_heads * 2 * o.value_dim, -4.0f, 4.0f)};
  }
  std::vector<Tensor> run(Session& s, const Between& between) const {
    const GatedDeltaOptions& o = delta.options;
    const int64_t n = delta.n;
    const Shape shape{n, o.value_heads, o.value_dim};
    const Tensor qkv = s.floats({n, 2 * o.key_heads * o.key_dim + shape[1] * shape[2]}, delta.qkv);
    const Tensor a = s.floats({n, o.decays()}, delta.a);
    const Tensor b = s.floats({n, o.value_heads}, delta.b);
    const Tensor rates = s.floats({o.value_heads}, delta.a_log);
    const Tensor biases = s.floats({o.decays()}, delta.dt_bias);
    const Tensor cells = s.floats({o.value_heads, o.key_dim, o.value_dim}, delta.state);
    const Tensor weight = s.floats({o.value_dim}, norm);
    const Tensor gate =
        s.floats({n, o.value_heads, 2 * o.value_dim}, gates).slice(2, o.value_dim, o.value_dim);
    const Tensor heads = s.zeros(shape);
    const Tensor out = own_out ? s.zeros(shape) : heads;
    Encoder& e = s.encoder();
    e.run(ops::GatedDelta{heads, qkv, a, b, rates, biases, testing::one_sequence(qkv.dim(0), cells),
                          o});
    between();
    e.run(ops::RmsNorm{out, heads, weight, 1e-6f});
    between();
    if (has_gate) e.run(ops::MulActivated{out, out, gate, activation});
    between();
    return {heads, out, cells};
  }
};

void check_gated_heads(size_t expected_launches, const GatedHeadsProblem& p) {
  const GatedDeltaOptions& o = p.delta.options;
  expect_same_bits_in(
      expected_launches,
      formatted("{} tokens, {} of {} heads, {}x{}, gate {}, own output {}", p.delta.n, o.key_heads,
                o.value_heads, o.key_dim, o.value_dim, p.has_gate, p.own_out),
      [&](Session& s, const Between& between) { return p.run(s, between); });
}

TEST(Fusion, TheDeltaRuleOfFewTokensAndItsGatedNormAreOneLaunch) {
  Random random(110);
  for (const GatedDeltaOptions& o :
       {GatedDeltaOptions{1, 1, 128, 128}, {2, 4, 128, 128}, {1, 3, 128, 128}}) {
    for (const int64_t tokens : {1, 2, 4}) {
      GatedHeadsProblem p = GatedHeadsProblem::make(random, o, tokens);
      check_gated_heads(1, p);
      p.has_gate = false;
      check_gated_heads(1, p);
    }
  }
}

TEST(Fusion, TheDeltaRuleWithDecaysOfRowsAndASigmoidGateIsOneLaunch) {
  Random random(112);
  for (const float bound : {0.0f, -5.0f}) {
    for (const int64_t tokens : {1, 3}) {
      GatedHeadsProblem p =
          GatedHeadsProblem::make(random, {2, 2, 128, 128, false, true, bound}, tokens);
      p.activation = Activation::kSigmoid;
      check_gated_heads(1, p);
    }
  }
}

TEST(Fusion, OtherDeltaRulesAndTheirNormsStayApart) {
  Random random(111);
  check_gated_heads(2, GatedHeadsProblem::make(random, {1, 2, 128, 128}, 5));
  check_gated_heads(2, GatedHeadsProblem::make(random, {1, 2, 128, 64}, 1));
  check_gated_heads(2, GatedHeadsProblem::make(random, {1, 2, 160, 128}, 1));
  GatedHeadsProblem p = GatedHeadsProblem::make(random, {1, 2, 128, 128}, 1);
  p.own_out = true;
  check_gated_heads(2, p);
}

}  // namespace
}  // namespace moeflux::conformance
