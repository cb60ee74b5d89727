// expert_ffn and combine_experts against the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

/// Element-wise bound: the two projections and the activation perturb each intermediate value by
/// their dot tolerances, which the down projection sums as independent errors.
std::vector<float> moe_tolerance(const MoeProblem& p) {
  std::vector<float> tolerance;
  std::vector<float> combined(static_cast<size_t>(p.n * p.hidden), 0.0f);
  const auto hidden = static_cast<size_t>(p.hidden);
  const auto inner = static_cast<size_t>(p.intermediate);
  for (int64_t slot = 0; slot < p.n * p.top_k; ++slot) {
    const auto t = static_cast<size_t>(slot / p.top_k);
    const auto e = static_cast<size_t>(p.ids[static_cast<size_t>(slot)]);
    const auto x = std::span(p.x).subspan(t * hidden, hidden);
    std::vector<float> h(inner);
    std::vector<float> h_error(inner);
    for (size_t m = 0; m < inner; ++m) {
      const auto g_row = std::span(p.gate[e].decoded).subspan(m * hidden, hidden);
      const auto u_row = std::span(p.up[e].decoded).subspan(m * hidden, hidden);
      double g = 0.0;
      double u = 0.0;
      for (size_t i = 0; i < hidden; ++i) {
        g += static_cast<double>(g_row[i]) * x[i];
        u += static_cast<double>(u_row[i]) * x[i];
      }
      if (!p.gate_bias.empty()) {
        g += p.gate_bias[e].decoded[m];
        u += p.up_bias[e].decoded[m];
      }
      // Activations and their slopes are below 1.2 |gate| and 1.2; a bias and an offset add a
      // rounding of their sums.
      const double g_error = dot_tolerance(g_row, x) + kRounding * std::abs(g);
      const double u_error = dot_tolerance(u_row, x) + kRounding * (std::abs(u) + 1.0);
      h[m] = static_cast<float>(gated_unit(g, u, p.glu));
      h_error[m] = static_cast<float>(
          1.2 * (g_error * (std::abs(u) + p.glu.up_offset) + u_error * std::abs(g)) +
          (12.0 + 4.0 * std::abs(g)) * kRounding * std::abs(h[m]));
    }
    for (size_t o = 0; o < hidden; ++o) {
      const auto row = std::span(p.down[e].decoded).subspan(o * inner, inner);
      const double carried = 2.0 * largest(row) * norm(h_error);
      tolerance.push_back(static_cast<float>(dot_tolerance(row, h) + carried));
      combined[t * hidden + o] += p.weights[static_cast<size_t>(slot)] * tolerance.back() +
                                  4.0f * kRounding * static_cast<float>(norm(row) * norm(h));
      if (p.down_bias.empty()) continue;
      tolerance.back() += kRounding * (std::abs(p.down_bias[e].decoded[o]) + 1.0f);
    }
  }
  tolerance.insert(tolerance.end(), combined.begin(), combined.end());
  return tolerance;
}

/// Row-major ones and tiles.
std::vector<QuantFormat> some_expert_formats() {
  std::vector<QuantFormat> formats = some_formats();
  for (const int bits : {4, 8}) {
    formats.push_back(QuantFormat::affine(bits, 64, DType::kBf16).with_order(WeightOrder::kTiled));
  }
  return formats;
}

TEST(ExpertFfn, MatchesTheReferenceInManyFormats) {
  Random random(31);
  for (const QuantFormat& format : some_expert_formats()) {
    for (const int64_t n : {1, 2, 3, 7, 17, 64}) {
      const MoeProblem p = MoeProblem::make(
          random, format, {.hidden = 256, .intermediate = 128, .experts = 5, .top_k = 3, .n = n});
      compare_with_reference({"expert_ffn", formatted("{}, {} tokens", format.to_string(), n),
                              p.hidden, moe_tolerance(p), /*on_slow_devices=*/n <= 17},
                             [&](Session& s) { return p.run(s, p.all_at_once()); });
    }
  }
}

TEST(ExpertFfn, KnowsCodesOfTwoAndFiveBits) {
  Random random(37);
  for (const QuantFormat& format :
       {QuantFormat::affine(2, 32, DType::kF16), QuantFormat::affine(5, 64, DType::kBf16)}) {
    for (const int64_t n : {1, 9, 30}) {
      const MoeProblem p = MoeProblem::make(
          random, format, {.hidden = 64, .intermediate = 64, .experts = 6, .top_k = 2, .n = n});
      compare_with_reference({"expert_ffn", formatted("{}, {} tokens", format.to_string(), n),
                              p.hidden, moe_tolerance(p)},
                             [&](Session& s) { return p.run(s, p.all_at_once()); });
    }
  }
}

TEST(ExpertFfn, GateAndUpMayDifferInFormatAtAnyTokenCount) {
  Random random(38);
  for (const int64_t n : {1, 10, 40}) {
    MoeProblem p =
        MoeProblem::make(random, QuantFormat::affine(4, 64, DType::kBf16),
                         {.hidden = 64, .intermediate = 64, .experts = 6, .top_k = 2, .n = n});
    for (EncodedWeight& up : p.up) {
      up = random_weight(random, QuantFormat::affine(8, 32, DType::kF32), 64, 64);
    }
    compare_with_reference(
        {"expert_ffn", formatted("4-bit gate, 8-bit up, {} tokens", n), p.hidden, moe_tolerance(p)},
        [&](Session& s) { return p.run(s, p.all_at_once()); });
  }
}

TEST(ExpertFfn, PlainExpertsMayHaveAnyWidth) {
  Random random(32);
  for (const int64_t n : {1, 9}) {
    const MoeProblem p =
        MoeProblem::make(random, QuantFormat::plain(DType::kBf16),
                         {.hidden = 37, .intermediate = 19, .experts = 3, .top_k = 2, .n = n});
    compare_with_reference(
        {"expert_ffn", formatted("bf16 37x19, {} tokens", n), p.hidden, moe_tolerance(p)},
        [&](Session& s) { return p.run(s, p.all_at_once()); });
  }
}

TEST(ExpertFfn, MatricesOfOneExpertMayHaveDifferentFormats) {
  Random random(33);
  MoeProblem p =
      MoeProblem::make(random, QuantFormat::affine(4, 64, DType::kBf16),
                       {.hidden = 128, .intermediate = 64, .experts = 2, .top_k = 2, .n = 5});
  p.up[0] = random_weight(random, QuantFormat::affine(8, 32, DType::kF32), 64, 128);
  p.gate[1] = random_weight(random, QuantFormat::affine(6, 64, DType::kF16), 64, 128);
  p.down[1] = random_weight(random, QuantFormat::affine(3, 32, DType::kF16), 128, 64);
  p.gate[0] = tiled(p.gate[0]);
  compare_with_reference({"expert_ffn", "mixed formats", p.hidden, moe_tolerance(p)},
                         [&](Session& s) { return p.run(s, p.all_at_once()); });
}

TEST(ExpertFfn, KnowsEveryGatedUnit) {
  Random random(35);
  for (const GluOptions& glu :
       {GluOptions{.activation = Activation::kGeluTanh},
        GluOptions{.alpha = 1.702f, .limit = 1.5f, .up_offset = 1.0f}, GluOptions{.limit = 0.5f},
        GluOptions{.activation = Activation::kCappedSilu, .limit = 0.25f},
        GluOptions{.activation = Activation::kSoftCapped, .alpha = 2.5f, .limit = 1.5f}}) {
    for (const int64_t n : {1, 9, 70}) {
      MoeProblem p =
          MoeProblem::make(random, QuantFormat::affine(4, 64, DType::kBf16),
                           {.hidden = 128, .intermediate = 64, .experts = 4, .top_k = 2, .n = n});
      p.glu = glu;
      const std::string label =
          formatted("activation {}, alpha {}, limit {}, {} tokens",
                    static_cast<int>(glu.activation), glu.alpha, glu.limit, n);
      compare_with_reference({"expert_ffn", label, p.hidden, moe_tolerance(p)},
                             [&](Session& s) { return p.run(s, p.all_at_once()); });
    }
  }
}

TEST(ExpertFfn, AddsBiasesOfEveryPlainType) {
  Random random(36);
  for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
    for (const int64_t n : {1, 3, 20}) {
      MoeProblem p =
          MoeProblem::make(random, QuantFormat::plain(DType::kBf16),
                           {.hidden = 45, .intermediate = 37, .experts = 4, .top_k = 2, .n = n});
      p.add_biases(random, dtype);
      p.glu = {.alpha = 1.702f, .limit = 7.0f, .up_offset = 1.0f};
      const std::string label = formatted("biases {}, {} tokens", dtype_name(dtype), n);
      compare_with_reference({"expert_ffn", label, p.hidden, moe_tolerance(p)},
                             [&](Session& s) { return p.run(s, p.all_at_once()); });
    }
  }
}

TEST(ExpertFfn, TouchesOnlySlotsOfReadyExperts) {
  Random random(34);
  const MoeProblem p =
      MoeProblem::make(random, QuantFormat::affine(4, 32, DType::kBf16),
                       {.hidden = 64, .intermediate = 32, .experts = 4, .top_k = 2, .n = 6});
  for (const NamedDevice* device : one_device_per_family()) {
    Session s(*device->device);
    const std::vector<float> result = p.run(s, {{1, 3}, {}});
    for (size_t slot = 0; slot < p.ids.size(); ++slot) {
      const auto row = std::span(result).subspan(slot * 64, 64);
      const bool is_ready = p.ids[slot] == 1 || p.ids[slot] == 3;
      EXPECT_EQ(largest(row) != 0.0f, is_ready) << device->name << ", slot " << slot;
    }
  }
}

}  // namespace
}  // namespace moeflux::conformance
