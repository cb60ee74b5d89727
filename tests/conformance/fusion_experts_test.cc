// The down products of a token's experts go on through the sum of the slots and what is added to
// it.
#include <gtest/gtest.h>

#include "base/format.h"
#include "tests/conformance/fusion.h"
#include "tests/conformance/models.h"

namespace moeflux::conformance {
namespace {

enum class Sums {
  kCombined,       // the slots alone
  kSharedFirst,    // then the shared expert, then the residual
  kResidualFirst,  // then the residual, then the shared expert
  kResidual,       // then the residual alone
  kSharedTwice,
  kOverIntermediate,  // the sum takes the place of what down reads
  kOverShared,        // the sum takes the shared expert's place
};

/// Routed experts and perhaps a shared one for few tokens, and sums of what they give.
struct ExpertsProblem {
  MoeProblem experts;
  EncodedWeight gate, up, down;
  std::vector<float> logits, out_gate, residual, norm;
  bool has_shared = true;
  bool chooses = true;  // the routes, from logits
  bool in_waves = false;
  bool has_norm = false;
  Sums sums = Sums::kSharedFirst;

  static ExpertsProblem make(Random& random, int bits, const MoeSizes& sizes) {
    const QuantFormat f = QuantFormat::affine(bits, 64, DType::kBf16);
    ExpertsProblem p{.experts = MoeProblem::make(random, f, sizes),
                     .gate = random_weight(random, f, sizes.intermediate, sizes.hidden),
                     .up = random_weight(random, f, sizes.intermediate, sizes.hidden),
                     .down = random_weight(random, f, sizes.hidden, sizes.intermediate),
                     .logits = random.floats(sizes.n * sizes.experts, -3.0f, 3.0f),
                     .out_gate = random.floats(sizes.n, -2.0f, 2.0f),
                     .residual = random.floats(sizes.n * sizes.hidden),
                     .norm = random.floats(sizes.hidden)};
    return p;
  }

  std::vector<ExpertWeights> place(Session& s) const {
    std::vector<ExpertWeights> all;
    for (size_t e = 0; e < experts.gate.size(); ++e) {
      all.push_back({ExpertId{static_cast<int32_t>(e)}, s.weight(experts.gate[e]),
                     s.weight(experts.up[e]), s.weight(experts.down[e])});
      if (experts.gate_bias.empty()) continue;
      all.back().gate_bias =
          s.weight(experts.gate_bias[e]).parts.codes.reshape({experts.intermediate});
      all.back().up_bias = s.weight(experts.up_bias[e]).parts.codes.reshape({experts.intermediate});
      all.back().down_bias = s.weight(experts.down_bias[e]).parts.codes.reshape({experts.hidden});
    }
    return all;
  }

  std::vector<Tensor> run(Session& s, const Between& between) const {
    const MoeProblem& m = experts;
    const Shape shape{m.n, m.hidden};
    Encoder& e = s.encoder();
    const std::vector<ExpertWeights> all = place(s);
    const std::span<const ExpertWeights> ready = all;
    const GluWeights network{s.weight(gate), s.weight(up), s.weight(down)};
    const Tensor x = s.floats(shape, m.x);
    const Tensor scores = s.floats({m.n, m.experts}, logits);
    const Tensor openness = s.floats({m.n, 1}, out_gate);
    const Tensor rest = s.floats(shape, residual);
    const Tensor weight = s.floats({m.hidden}, norm);
    const Routes routes{s.ints({m.n, m.top_k}, m.ids), s.floats({m.n, m.top_k}, m.weights)};
    const Tensor slots = s.zeros({m.n, m.top_k, m.hidden});
    const Tensor space = s.zeros({m.n, m.top_k, m.intermediate});
    const Tensor shared = s.zeros(shape);
    const Tensor normed = s.zeros(shape);
    const Tensor next = s.zeros(shape);
    Tensor out = s.zeros(shape);
    if (chooses) e.run(ops::Route{routes, scores, {}});
    between();
    if (has_shared) e.run(ops::GatedFfn{shared, x, network, openness, m.glu});
    between();
    const size_t first = in_waves ? ready.size() / 2 : ready.size();
    e.run(ops::ExpertFfn{slots, space, x, routes, ready.first(first), m.glu});
    between();
    if (in_waves) e.run(ops::ExpertFfn{slots, space, x, routes, ready.subspan(first), m.glu});
    between();
    if (sums == Sums::kOverIntermediate) {
      out = space.reshape({m.n * m.top_k, m.intermediate}).slice(0, 0, m.n);
    }
    if (sums == Sums::kOverShared) out = shared;
    e.run(ops::CombineExperts{out, slots, routes});
    between();
    Tensor value = out;
    const auto add = [&](const Tensor& to, const Tensor& more) {
      e.run(ops::Add{to, value, more});
      between();
      value = to;
    };
    if (sums == Sums::kSharedFirst || sums == Sums::kSharedTwice) add(out, shared);
    if (sums == Sums::kSharedTwice) add(out, shared);
    if (sums == Sums::kSharedFirst || sums == Sums::kResidual) add(next, rest);
    if (sums == Sums::kResidualFirst) {
      add(next, rest);
      add(next, shared);
    }
    if (has_norm) e.run(ops::RmsNorm{normed, value, weight, 1e-6f});
    between();
    return {slots, shared, out, next, rest, normed};
  }
};

void check_experts(size_t expected_launches, const std::string& what, const ExpertsProblem& p) {
  expect_same_bits_in(expected_launches, what,
                      [&](Session& s, const Between& between) { return p.run(s, between); });
}

TEST(Fusion, TheSumOfSlotsFollowsDownInOneLaunch) {
  Random random(120);
  for (const int bits : {4, 8}) {
    for (const int64_t top_k : {1, 3, 8}) {
      for (const int64_t n : {1, 2}) {
        const ExpertsProblem p = ExpertsProblem::make(
            random, bits,
            {.hidden = 64, .intermediate = 128, .experts = 9, .top_k = top_k, .n = n});
        check_experts(2, formatted("{} bits, {} of experts, {} tokens", bits, top_k, n), p);
      }
    }
  }
}

TEST(Fusion, DownAndItsSumMayHaveBiasesAndNoChoice) {
  Random random(121);
  ExpertsProblem whole = ExpertsProblem::make(
      random, 4, {.hidden = 64, .intermediate = 512, .experts = 3, .top_k = 2, .n = 1});
  check_experts(2, "a whole split", whole);
  ExpertsProblem p = ExpertsProblem::make(
      random, 4, {.hidden = 128, .intermediate = 64, .experts = 300, .top_k = 2, .n = 2});
  check_experts(2, "many experts", p);
  p = ExpertsProblem::make(random, 8,
                           {.hidden = 128, .intermediate = 64, .experts = 5, .top_k = 4, .n = 2});
  p.experts.add_biases(random, DType::kBf16);
  check_experts(2, "biases", p);
  p.chooses = false;
  check_experts(2, "routes that are there", p);
  p.has_shared = false;
  p.sums = Sums::kResidual;
  check_experts(2, "no shared expert", p);
  p.in_waves = true;
  check_experts(4, "two waves", p);
  p.has_shared = true;
  p.chooses = true;
  p.sums = Sums::kSharedFirst;
  check_experts(4, "two waves and routes", p);
}

TEST(Fusion, AnySumsMayFollowDown) {
  Random random(122);
  ExpertsProblem p = ExpertsProblem::make(
      random, 4, {.hidden = 64, .intermediate = 64, .experts = 6, .top_k = 3, .n = 2});
  for (const Sums sums :
       {Sums::kCombined, Sums::kSharedFirst, Sums::kResidualFirst, Sums::kResidual}) {
    p.sums = sums;
    p.has_norm = false;
    check_experts(2, formatted("sums {}", static_cast<int>(sums)), p);
    p.has_norm = true;
    check_experts(3, formatted("sums {} and a norm", static_cast<int>(sums)), p);
  }
}

TEST(Fusion, SumsThatDownCannotMakeStayApart) {
  Random random(123);
  const auto make = [&](int64_t top_k, int64_t intermediate, int64_t n) {
    return ExpertsProblem::make(
        random, 4,
        {.hidden = 64, .intermediate = intermediate, .experts = 14, .top_k = top_k, .n = n});
  };
  check_experts(3, "many slots", make(12, 64, 1));
  check_experts(3, "two splits", make(2, 576, 1));
  ExpertsProblem p = make(2, 64, 2);
  p.sums = Sums::kOverIntermediate;
  check_experts(3, "over what down reads", p);
  p.sums = Sums::kOverShared;
  check_experts(3, "over the shared expert", p);
  p.sums = Sums::kSharedTwice;
  check_experts(3, "the shared expert twice", p);
}

}  // namespace
}  // namespace moeflux::conformance
