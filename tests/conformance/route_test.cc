// route against the reference, and its rules for ties.
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
  s.encoder().run(ops::Route{routes, s.floats({n, experts}, logits), options});
  return {s.read_ints(routes.ids), s.read(routes.weights)};
}

TEST(Route, MatchesTheReference) {
  Random random(30);
  for (const int64_t experts : {1, 4, 17, 64, 256, 300, 513}) {
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
          const std::string label = formatted("{} of {}, {} tokens{}", top_k, experts, n,
                                              normalize ? ", normalised" : "");
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

std::string_view score_name(RouterScore score) {
  switch (score) {
    case RouterScore::kSoftmax:
      return "softmax";
    case RouterScore::kSigmoid:
      return "sigmoid";
    case RouterScore::kSqrtSoftplus:
      return "root of softplus";
  }
  __builtin_unreachable();
}

struct RouteCase {
  RouterScore score;
  bool has_bias;
  int64_t groups;
  int64_t kept;
  GroupScore group_score;
};

void check_route_case(Random& random, const RouteCase& c, int64_t experts, int64_t n) {
  constexpr int64_t kTopK = 6;
  const std::vector<float> logits = random.floats(n * experts, -4.0f, 4.0f);
  const std::vector<float> bias = random.floats(experts, -0.5f, 0.5f);
  const std::vector<float> factors = random.floats(experts, 0.5f, 2.0f);
  const auto run = [&](Session& s) {
    RouterOptions options{.score = c.score,
                          .num_groups = c.groups,
                          .groups_kept = c.kept,
                          .group_score = c.group_score,
                          .normalize = n != 3,
                          .normalize_epsilon = 1e-2f,
                          .normalize_least = n == 7 ? 0.2f : 0.0f,
                          .scale = 2.5f};
    if (c.has_bias) options.correction_bias = s.floats({experts}, bias);
    if (n == 7) options.expert_scale = s.floats({experts}, factors);
    return run_route(s, logits, n, kTopK, options);
  };
  Session oracle(reference());
  const RouteResult expected = run(oracle);
  std::vector<float> tolerance;
  const float roundings = 16.0f + std::sqrt(static_cast<float>(experts));
  for (const float w : expected.weights) tolerance.push_back(kRounding * roundings * 2.0f * w);
  const std::string label =
      formatted("{} experts, {} of {} groups{}, {}, {} tokens", experts, c.kept, c.groups,
                c.group_score == GroupScore::kMax ? "" : " by two", score_name(c.score), n);
  compare_with_reference({"route", label, kTopK, tolerance}, [&](Session& s) {
    const RouteResult got = run(s);
    EXPECT_EQ(got.ids, expected.ids) << label;
    return got.weights;
  });
}

// So many that GPUs have a SIMD group for each, not a group.
constexpr int64_t kMany = 261;

TEST(Route, ScoresCorrectsAndLimitsGroupsLikeTheReference) {
  Random random(37);
  for (const RouterScore score :
       {RouterScore::kSoftmax, RouterScore::kSigmoid, RouterScore::kSqrtSoftplus}) {
    for (const bool has_bias : {false, true}) {
      for (const auto& [groups, kept] : {std::pair{1, 1}, {4, 2}, {8, 4}, {8, 1}}) {
        for (const GroupScore group_score : {GroupScore::kMax, GroupScore::kTopTwoSum}) {
          for (const int64_t n : {1, 3, 7, 64}) {
            const RouteCase c{score, has_bias, groups, kept, group_score};
            check_route_case(random, c, 64, n);
            check_route_case(random, c, 72, n);
            check_route_case(random, c, 256, n);
          }
          if (has_bias && group_score == GroupScore::kTopTwoSum) {
            check_route_case(random, {score, has_bias, groups, kept, group_score}, 256, kMany);
          }
        }
      }
    }
  }
}

TEST(Route, RootsOfSoftplusAreExactFarFromZero) {
  const std::vector<float> logits = {-30.0f, -12.0f, -1.0f, 0.0f, 1.0f, 18.0f, 25.0f, 90.0f};
  for (const NamedDevice& device : devices()) {
    Session s(*device.device);
    const RouteResult got =
        run_route(s, logits, 1, 8, {.score = RouterScore::kSqrtSoftplus, .normalize = false});
    for (size_t r = 0; r < 8; ++r) {
      const double logit = logits[static_cast<size_t>(got.ids[r])];
      const double expected =
          std::sqrt(std::max(logit, 0.0) + std::log1p(std::exp(-std::abs(logit))));
      EXPECT_NEAR(got.weights[r], expected, 1e-5 * expected) << device.name << ", " << logit;
    }
  }
}

// The table decides, whatever the scores; weights are those of the chosen.
TEST(Route, TakesTheExpertsThatATableLists) {
  Random random(41);
  constexpr int64_t kVocab = 11;
  for (const auto& [experts, top_k] : {std::pair{8, 2}, {256, 6}, {513, 32}}) {
    std::vector<int32_t> table;
    for (int64_t token = 0; token < kVocab; ++token) {
      const auto first = random.below(experts);
      for (int64_t r = 0; r < top_k; ++r) {
        table.push_back(static_cast<int32_t>((first + r * 7) % experts));
      }
    }
    for (const int64_t n : {1, 5, 64}) {
      const std::vector<float> logits = random.floats(n * experts, -4.0f, 4.0f);
      std::vector<int32_t> tokens;
      for (int64_t t = 0; t < n; ++t) tokens.push_back(static_cast<int32_t>(random.below(kVocab)));
      const auto run = [&, k = top_k](Session& s) {
        return run_route(s, logits, n, k,
                         {.score = RouterScore::kSqrtSoftplus,
                          .normalize_epsilon = 1e-20f,
                          .scale = 1.5f,
                          .table = s.ints({kVocab, k}, table),
                          .token_ids = s.ints({n}, tokens)});
      };
      Session oracle(reference(), size_t{1} << 20);
      const RouteResult expected = run(oracle);
      for (int64_t t = 0; t < n; ++t) {
        const auto listed =
            std::span(table).subspan(static_cast<size_t>(tokens[static_cast<size_t>(t)] * top_k),
                                     static_cast<size_t>(top_k));
        EXPECT_TRUE(std::ranges::equal(
            std::span(expected.ids).subspan(static_cast<size_t>(t * top_k), listed.size()),
            listed));
      }
      for (const NamedDevice& device : devices()) {
        Session s(*device.device, size_t{1} << 20);
        const RouteResult got = run(s);
        EXPECT_EQ(got.ids, expected.ids) << device.name;
        for (size_t i = 0; i < got.weights.size(); ++i) {
          EXPECT_NEAR(got.weights[i], expected.weights[i], 1e-5f) << device.name;
        }
      }
    }
  }
}

TEST(Route, ATokenAmongManyIsJudgedAsAloneToTheBit) {
  Random random(39);
  for (const auto& [experts, groups] : {std::pair{256, 1}, {256, 8}, {300, 1}, {72, 1}}) {
    // Whole numbers are often equal.
    std::vector<float> logits = random.floats(kMany * experts, -4.0f, 4.0f);
    for (size_t i = 0; i < logits.size() / 2; ++i) logits[i] = std::round(logits[i]);
    const RouterOptions options{.score = groups > 1 ? RouterScore::kSigmoid : RouterScore::kSoftmax,
                                .num_groups = groups,
                                .groups_kept = groups > 1 ? 3 : 1,
                                .group_score = GroupScore::kTopTwoSum,
                                .normalize = true};
    Session oracle(reference());
    const RouteResult by_reference = run_route(oracle, logits, kMany, 6, options);
    for (const NamedDevice* device : one_device_per_family()) {
      Session all(*device->device);
      const RouteResult expected = run_route(all, logits, kMany, 6, options);
      EXPECT_EQ(expected.ids, by_reference.ids) << device->name;
      for (int64_t t = 0; t < kMany; t += 10) {
        Session one(*device->device);
        const RouteResult got =
            run_route(one, std::span(logits).subspan(static_cast<size_t>(t * experts), experts), 1,
                      6, options);
        const auto own = static_cast<size_t>(t * 6);
        const std::string label =
            formatted("{} experts in {} groups[{}, token {}]", experts, groups, device->name, t);
        EXPECT_TRUE(std::ranges::equal(got.ids, std::span(expected.ids).subspan(own, 6))) << label;
        expect_same_bits(label, std::span(expected.weights).subspan(own, 6), got.weights);
      }
    }
  }
}

/// ids on every device and on the reference.
void expect_ids(const std::vector<float>& logits, const std::vector<float>& bias,
                RouterOptions options, const std::vector<int32_t>& expected) {
  const auto run = [&](Device& device) {
    Session s(device);
    if (!bias.empty()) options.correction_bias = s.floats({static_cast<int64_t>(8)}, bias);
    return run_route(s, logits, 1, static_cast<int64_t>(expected.size()), options).ids;
  };
  EXPECT_EQ(run(reference()), expected);
  for (const NamedDevice& device : devices()) EXPECT_EQ(run(*device.device), expected);
}

TEST(Route, TiedGroupsGoToTheLowerGroup) {
  for (const GroupScore group_score : {GroupScore::kMax, GroupScore::kTopTwoSum}) {
    const RouterOptions options{.score = RouterScore::kSigmoid,
                                .num_groups = 4,
                                .groups_kept = 2,
                                .group_score = group_score};
    expect_ids({1, 0, 2, 1, 1, 2, 2, 1}, {}, options, {2, 5, 3, 4});
  }
}

TEST(Route, GroupsOfOneExpertAreJudgedByIt) {
  const RouterOptions options{.score = RouterScore::kSigmoid,
                              .num_groups = 8,
                              .groups_kept = 3,
                              .group_score = GroupScore::kTopTwoSum};
  expect_ids({3, 0, 2, 1, 5, -1, 4, -2}, {}, options, {4, 6, 0});
}

TEST(Route, ABiasSelectsAndTiesStillGoToTheLowerId) {
  expect_ids({0, 0, 0, 0, 0, 0, 0, 0}, {0, 1, 0, 1, 2, 0, 0, 0}, {.score = RouterScore::kSigmoid},
             {4, 1, 3, 0, 2});
}

TEST(Route, ExpertsOfMaskedGroupsScoreZeroAndMayBeatNegativeOnes) {
  // Only the second group is kept; its second expert falls below the zeros of the others.
  const RouterOptions options{.score = RouterScore::kSigmoid,
                              .num_groups = 4,
                              .groups_kept = 1,
                              .group_score = GroupScore::kMax};
  expect_ids({0, 0, 4, 0, 0, 0, 0, 0}, {0, 0, 0, -2, 0, 0, 0, 0}, options, {2, 0, 1, 4});
}

TEST(Route, ExpertsOfMaskedGroupsScoreZeroWhereASimdGroupJudgesEach) {
  // The second of 3 groups of 32 is kept; with most of it below zero, those before it follow.
  constexpr int64_t kExperts = 96;
  std::vector<float> bias(kExperts, -2.0f);
  bias[40] = 2.0f;
  bias[63] = 1.0f;
  for (const int64_t n : {1, 5}) {
    const std::vector<float> logits(static_cast<size_t>(n * kExperts), 0.0f);
    const auto run = [&](Device& device) {
      Session s(device);
      RouterOptions options{.score = RouterScore::kSigmoid,
                            .num_groups = 3,
                            .groups_kept = 1,
                            .group_score = GroupScore::kTopTwoSum};
      options.correction_bias = s.floats({kExperts}, bias);
      return run_route(s, logits, n, 5, options).ids;
    };
    std::vector<int32_t> expected;
    for (int64_t i = 0; i < n; ++i) expected.insert(expected.end(), {40, 63, 0, 1, 2});
    EXPECT_EQ(run(reference()), expected);
    for (const NamedDevice& device : devices()) EXPECT_EQ(run(*device.device), expected);
  }
}

/// Weights of chosen experts and of two that every token has, of all calls.
std::vector<float> shared_weights_of(Session& s, const std::vector<float>& scores,
                                     const std::vector<float>& logits, const Chunks& chunks) {
  const int64_t n = total(chunks);
  const Tensor weights = s.floats({n, 5}, scores);
  const Tensor all = s.floats({n, 9}, logits);
  const Tensor out = s.zeros({n, 2});
  int64_t at = 0;
  for (const int64_t rows : chunks) {
    s.encoder().run(ops::ShareWeights{out.slice(0, at, rows), weights.slice(0, at, rows),
                                      all.slice(0, at, rows).slice(1, 7, 2), 2.5f});
    at += rows;
  }
  std::vector<float> both = s.read(weights);
  const std::vector<float> shared = s.read(out);
  both.insert(both.end(), shared.begin(), shared.end());
  return both;
}

TEST(ShareWeights, MatchTheReference) {
  Random random(96);
  const std::vector<float> scores = random.floats(70 * 5, 0.01f, 1.0f);
  const std::vector<float> logits = random.floats(70 * 9, -9.0f, 9.0f);
  const std::vector<float> tolerance(70 * 7, 32.0f * kRounding);
  for (const Chunks& chunks : {Chunks{70}, Chunks{1, 68, 1}}) {
    compare_with_reference({"share_weights", "two beside five", 7, tolerance}, [&](Session& s) {
      return shared_weights_of(s, scores, logits, chunks);
    });
  }
}

}  // namespace
}  // namespace moeflux::conformance
