// route, expert_ffn and combine_experts against the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

struct RouteResult {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

RouteResult run_route(Session& s, std::span<const float> logits, int64_t n, int64_t top_k,
                      const RouterOptions& options) {
  const auto experts = static_cast<int64_t>(logits.size()) / n;
  const Routes routes{s.zeros({n, top_k}, DType::kI32), s.zeros({n, top_k})};
  s.encoder().route(routes, s.floats({n, experts}, logits), options);
  return {s.read_ints(routes.ids), s.read(routes.weights)};
}

TEST(Route, MatchesTheReference) {
  Random random(30);
  for (const int64_t experts : {1, 4, 17, 64, 128, 513}) {
    for (const int64_t n : {1, 3, 64}) {
      for (const int64_t top_k : {int64_t{1}, int64_t{2}, int64_t{8}, experts}) {
        if (top_k > experts || top_k > 64) continue;
        const std::vector<float> logits = random.floats(n * experts, -10.0f, 10.0f);
        for (const bool normalize : {true, false}) {
          const RouterOptions options{.normalize = normalize, .scale = 2.5f};
          Session oracle(reference());
          const RouteResult expected = run_route(oracle, logits, n, top_k, options);
          // Exponentials, a sum over experts and two divisions, relative to each weight.
          std::vector<float> tolerance;
          const float roundings = 12.0f + std::sqrt(static_cast<float>(experts));
          for (const float w : expected.weights) {
            tolerance.push_back(kRounding * roundings * 2.0f * w + 1e-30f);
          }
          const std::string label =
              format("{} of {}, {} tokens{}", top_k, experts, n, normalize ? ", normalised" : "");
          compare_with_reference({"route", label, top_k, tolerance}, [&](Session& s) {
            const RouteResult got = run_route(s, logits, n, top_k, options);
            EXPECT_EQ(got.ids, expected.ids) << label;
            return got.weights;
          });
        }
      }
    }
  }
}

TEST(Route, TiesGoToTheLowerId) {
  const std::vector<float> logits = {1, 2, 2, 0, 2, 1, 1, 2};
  for (const NamedDevice& device : devices()) {
    Session s(*device.device);
    EXPECT_EQ(run_route(s, logits, 1, 6, {}).ids, (std::vector<int32_t>{1, 2, 4, 7, 0, 5}))
        << device.name;
  }
}

TEST(Route, ChoosesDistinctValidExpertsEvenFromNaN) {
  const std::vector<float> logits(20, std::nanf(""));
  for (const NamedDevice& device : devices()) {
    Session s(*device.device);
    EXPECT_EQ(run_route(s, logits, 1, 3, {}).ids, (std::vector<int32_t>{0, 1, 2})) << device.name;
  }
}

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
      const double silu = g / (1.0 + std::exp(-g));
      h[m] = static_cast<float>(silu * u);
      // SiLU's slope is below 1.1.
      h_error[m] = static_cast<float>(1.1 * dot_tolerance(g_row, x) * std::abs(u) +
                                      dot_tolerance(u_row, x) * std::abs(silu) +
                                      8.0 * kRounding * std::abs(silu * u));
    }
    for (size_t o = 0; o < hidden; ++o) {
      const auto row = std::span(p.down[e].decoded).subspan(o * inner, inner);
      const double carried = 2.0 * largest(row) * norm(h_error);
      tolerance.push_back(static_cast<float>(dot_tolerance(row, h) + carried));
      combined[t * hidden + o] += p.weights[static_cast<size_t>(slot)] * tolerance.back() +
                                  4.0f * kRounding * static_cast<float>(norm(row) * norm(h));
    }
  }
  tolerance.insert(tolerance.end(), combined.begin(), combined.end());
  return tolerance;
}

TEST(ExpertFfn, MatchesTheReferenceInManyFormats) {
  Random random(31);
  for (const QuantFormat& format : some_formats()) {
    for (const int64_t n : {1, 2, 3, 7, 17, 64}) {
      const MoeProblem p = MoeProblem::make(
          random, format, {.hidden = 256, .intermediate = 128, .experts = 5, .top_k = 3, .n = n});
      compare_with_reference({"expert_ffn", moeflux::format("{}, {} tokens", format.to_string(), n),
                              p.hidden, moe_tolerance(p)},
                             [&](Session& s) { return p.run(s, p.all_at_once()); });
    }
  }
}

TEST(ExpertFfn, PlainExpertsMayHaveAnyWidth) {
  Random random(32);
  for (const int64_t n : {1, 9}) {
    const MoeProblem p =
        MoeProblem::make(random, QuantFormat::plain(DType::kBf16),
                         {.hidden = 37, .intermediate = 19, .experts = 3, .top_k = 2, .n = n});
    compare_with_reference(
        {"expert_ffn", format("bf16 37x19, {} tokens", n), p.hidden, moe_tolerance(p)},
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
  compare_with_reference({"expert_ffn", "mixed formats", p.hidden, moe_tolerance(p)},
                         [&](Session& s) { return p.run(s, p.all_at_once()); });
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
