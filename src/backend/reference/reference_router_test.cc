// The oracle's router against routes worked out by hand and with f64 Python.
#include <gtest/gtest.h>

#include <vector>

#include "backend/reference/reference_device.h"
#include "tests/support/device_session.h"

namespace moeflux {
namespace {

struct Chosen {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

// The routes of one token. `bias` may be empty.
Chosen route(const std::vector<float>& logits, int64_t top_k, RouterOptions options,
             const std::vector<float>& bias = {}) {
  const std::unique_ptr<Device> device = make_reference_device();
  testing::DeviceSession session(*device);
  const auto experts = static_cast<int64_t>(logits.size());
  if (!bias.empty()) options.correction_bias = session.floats({experts}, bias);
  const Routes routes{session.zeros({1, top_k}, DType::kI32), session.zeros({1, top_k})};
  session.encoder().run(ops::Route{routes, session.floats({1, experts}, logits), options});
  return {session.read_ints(routes.ids), session.read(routes.weights)};
}

void expect_weights(const Chosen& chosen, const std::vector<float>& expected) {
  ASSERT_EQ(chosen.weights.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(chosen.weights[i], expected[i], 1e-6f) << "rank " << i;
  }
}

TEST(ReferenceRouter, CorrectionBiasSelectsWithinTheBestGroupsAndDoesNotWeigh) {
  const Chosen chosen = route({0.1f, -0.2f, 1.0f, 0.5f, 2.0f, -1.0f, 0.3f, 0.2f}, 2,
                              {.score = RouterScore::kSigmoid,
                               .num_groups = 4,
                               .groups_kept = 2,
                               .group_score = GroupScore::kTopTwoSum,
                               .normalize_epsilon = 1e-20f,
                               .scale = 2.5f},
                              {0.0f, 0.3f, 0.0f, 0.0f, -0.5f, 0.0f, 0.1f, 0.1f});
  EXPECT_EQ(chosen.ids, (std::vector<int32_t>{2, 6}));
  expect_weights(chosen, {1.399957804f, 1.100042196f});
}

TEST(ReferenceRouter, SoftmaxWeightsMayBeRenormalised) {
  const std::vector<float> logits = {1.0f, 2.0f, 3.0f, 0.0f};
  const Chosen normalised = route(logits, 2, {.normalize = true});
  EXPECT_EQ(normalised.ids, (std::vector<int32_t>{2, 1}));
  expect_weights(normalised, {0.731058579f, 0.268941421f});
  const Chosen plain = route(logits, 2, {.normalize = false});
  EXPECT_EQ(plain.ids, (std::vector<int32_t>{2, 1}));
  expect_weights(plain, {0.643914260f, 0.236882818f});
}

TEST(ReferenceRouter, ScaleMultipliesAfterRenormalising) {
  const Chosen chosen = route({1.0f, 2.0f, 3.0f, 0.0f}, 2, {.normalize = true, .scale = 2.0f});
  expect_weights(chosen, {2 * 0.731058579f, 2 * 0.268941421f});
}

TEST(ReferenceRouter, TiesGoToTheLowerExpertAndTheLowerGroup) {
  const std::vector<float> logits = {1.0f, 3.0f, 1.0f, 3.0f, 3.0f, 1.0f};
  EXPECT_EQ(route(logits, 4, {}).ids, (std::vector<int32_t>{1, 3, 4, 0}));
  const std::vector<float> equal(6, 0.5f);
  for (const GroupScore score : {GroupScore::kMax, GroupScore::kTopTwoSum}) {
    const Chosen chosen =
        route(equal, 3, {.num_groups = 3, .groups_kept = 2, .group_score = score});
    EXPECT_EQ(chosen.ids, (std::vector<int32_t>{0, 1, 2}));
  }
}

TEST(ReferenceRouter, GroupsAreJudgedByTheirBestOrByTheirBestTwo) {
  const std::vector<float> logits = {2.0f, -5.0f, 1.0f, 1.0f};
  RouterOptions options{.score = RouterScore::kSigmoid, .num_groups = 2, .groups_kept = 1};
  options.group_score = GroupScore::kMax;
  EXPECT_EQ(route(logits, 2, options).ids, (std::vector<int32_t>{0, 1}));
  options.group_score = GroupScore::kTopTwoSum;
  EXPECT_EQ(route(logits, 2, options).ids, (std::vector<int32_t>{2, 3}));
}

// Masked experts count 0, not minus infinity: with a negative bias they beat those of a kept group.
TEST(ReferenceRouter, MaskedExpertsBeatNegativeCorrectedScores) {
  const RouterOptions options{.score = RouterScore::kSigmoid,
                              .num_groups = 2,
                              .groups_kept = 1,
                              .group_score = GroupScore::kTopTwoSum,
                              .normalize = false};
  const std::vector<float> logits = {0.0f, 0.0f, 1.0f, 1.0f};
  const Chosen masked = route(logits, 2, options, {-5.0f, -5.0f, -5.0f, -5.0f});
  EXPECT_EQ(masked.ids, (std::vector<int32_t>{0, 1}));
  expect_weights(masked, {0.5f, 0.5f});
  const Chosen kept = route(logits, 2, options, {-0.1f, -0.1f, -0.1f, -0.1f});
  EXPECT_EQ(kept.ids, (std::vector<int32_t>{2, 3}));
  // One kept expert above 0, the other below: the first masked one takes the second place.
  const Chosen mixed = route(logits, 2, options, {-5.0f, -5.0f, -5.0f, 0.0f});
  EXPECT_EQ(mixed.ids, (std::vector<int32_t>{3, 0}));
}

TEST(ReferenceRouter, LargeLogitsDoNotOverflow) {
  const Chosen chosen = route({1000.0f, 999.0f, -1000.0f}, 2, {});
  expect_weights(chosen, {0.731058579f, 0.268941421f});
}

}  // namespace
}  // namespace moeflux
