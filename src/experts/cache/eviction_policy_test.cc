#include "experts/cache/eviction_policy.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

constexpr ExpertShape kShape = {.num_layers = 2, .num_experts = 4};

ExpertKey key(int32_t expert, int32_t layer = 0) { return {LayerId{layer}, ExpertId{expert}}; }

void visit(EvictionPolicy& policy, std::initializer_list<int32_t> experts, int32_t layer = 0) {
  policy.begin_visit(LayerId{layer});
  for (const int32_t expert : experts) policy.note_use(key(expert, layer));
}

int64_t worth(const EvictionPolicy& policy, ExpertKey of) {
  return policy.worth(of.layer, policy.rank(of));
}

TEST(CachePolicy, NamesAreReadBack) {
  for (const CachePolicy policy : {CachePolicy::kDecayedLfu, CachePolicy::kLru}) {
    EXPECT_EQ(parse_cache_policy(cache_policy_name(policy)), policy);
  }
  EXPECT_EQ(parse_cache_policy("fifo"), std::nullopt);
}

class BothPolicies : public ::testing::TestWithParam<CachePolicy> {
 protected:
  std::unique_ptr<EvictionPolicy> policy_ =
      make_eviction_policy(kShape, {.policy = GetParam(), .decay = 0.5, .prefill_weight = 1.0});
};

TEST_P(BothPolicies, NothingIsWorthLessThanWhatWasNeverUsed) {
  visit(*policy_, {1});
  for (int i = 0; i < 1000; ++i) visit(*policy_, {});
  EXPECT_EQ(policy_->rank(key(0)), EvictionPolicy::kNeverUsed);
  EXPECT_EQ(worth(*policy_, key(0)), EvictionPolicy::kNeverUsed);
  EXPECT_GT(worth(*policy_, key(1)), worth(*policy_, key(0)));
}

TEST_P(BothPolicies, RanksDoNotChangeAsTimePasses) {
  visit(*policy_, {1, 2});
  visit(*policy_, {2});
  const int64_t first = policy_->rank(key(1));
  const int64_t second = policy_->rank(key(2));
  for (int i = 0; i < 30; ++i) visit(*policy_, {3});
  EXPECT_EQ(policy_->rank(key(1)), first);
  EXPECT_EQ(policy_->rank(key(2)), second);
  EXPECT_LT(first, second);
}

TEST_P(BothPolicies, APromptsChoiceIsWorthMoreThanNothing) {
  policy_->begin_prefill(LayerId{0}, 8.0);
  policy_->note_prefill(key(1), 4.0);
  EXPECT_GT(policy_->rank(key(1)), policy_->rank(key(0)));
}

INSTANTIATE_TEST_SUITE_P(All, BothPolicies,
                         ::testing::Values(CachePolicy::kDecayedLfu, CachePolicy::kLru),
                         [](const auto& test) {
                           return std::string(cache_policy_name(test.param));
                         });

TEST(Lru, TheLastUseCountsAndNothingElse) {
  const auto policy = make_eviction_policy(kShape, {.policy = CachePolicy::kLru});
  visit(*policy, {1, 1, 1});
  visit(*policy, {2});
  EXPECT_LT(worth(*policy, key(1)), worth(*policy, key(2)));
  visit(*policy, {0}, 1);
  EXPECT_LT(worth(*policy, key(2)), worth(*policy, key(0, 1)));
}

std::unique_ptr<EvictionPolicy> halving() {
  return make_eviction_policy(kShape, {.decay = 0.5, .prefill_weight = 1.0});
}

TEST(DecayedLfu, UsesHalveAtEveryVisitOfTheirLayer) {
  const auto policy = halving();
  visit(*policy, {1, 1, 1, 1});
  visit(*policy, {});
  visit(*policy, {2});
  EXPECT_EQ(policy->rank(key(1)), policy->rank(key(2)));  // four, halved twice, are one
  visit(*policy, {2});
  EXPECT_LT(policy->rank(key(1)), policy->rank(key(2)));
}

TEST(DecayedLfu, LayersAgeByTheirOwnVisits) {
  const auto policy = halving();
  visit(*policy, {1}, 0);
  visit(*policy, {1}, 1);
  EXPECT_EQ(worth(*policy, key(1, 0)), worth(*policy, key(1, 1)));
  visit(*policy, {}, 0);
  EXPECT_LT(worth(*policy, key(1, 0)), worth(*policy, key(1, 1)));
  visit(*policy, {}, 1);
  EXPECT_EQ(worth(*policy, key(1, 0)), worth(*policy, key(1, 1)));
}

TEST(DecayedLfu, APromptCountsByShareHoweverLongItIs) {
  const auto policy = halving();
  policy->begin_prefill(LayerId{0}, 10.0);
  policy->note_prefill(key(1), 5.0);
  policy->begin_prefill(LayerId{1}, 1000.0);
  policy->note_prefill(key(1, 1), 500.0);
  EXPECT_EQ(worth(*policy, key(1, 0)), worth(*policy, key(1, 1)));
}

TEST(DecayedLfu, DecodeInheritsThePromptsOrderAndOverrulesIt) {
  const auto policy = halving();
  policy->begin_prefill(LayerId{0}, 4.0);
  policy->note_prefill(key(1), 3.0);
  policy->note_prefill(key(2), 1.0);
  const int64_t first = policy->rank(key(1));
  visit(*policy, {});
  EXPECT_EQ(policy->rank(key(1)), first);
  EXPECT_LT(policy->rank(key(2)), first);
  visit(*policy, {2});
  EXPECT_GT(policy->rank(key(2)), policy->rank(key(1)));
}

TEST(DecayedLfu, ThePromptsEndLeavesTheRanksOfOldUses) {
  const auto policy = halving();
  visit(*policy, {1, 1, 1, 1});
  for (int i = 0; i < 3; ++i) visit(*policy, {});
  policy->begin_prefill(LayerId{0}, 4.0);
  policy->note_prefill(key(1), 1.0);
  policy->note_prefill(key(2), 1.0);
  const int64_t before = policy->rank(key(1));
  EXPECT_GT(before, policy->rank(key(2)));
  visit(*policy, {});  // the prompt's shares join the counts
  EXPECT_EQ(policy->rank(key(1)), before);
  visit(*policy, {});
  EXPECT_EQ(policy->rank(key(1)), before);
}

}  // namespace
}  // namespace moeflux
