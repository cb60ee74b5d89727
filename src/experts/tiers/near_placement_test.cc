#include "experts/tiers/near_placement.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace moeflux {
namespace {

constexpr ExpertShape kNearShape{.num_layers = 2, .num_experts = 4};

ExpertKey near_key(int32_t layer, int32_t expert) { return {LayerId{layer}, ExpertId{expert}}; }

/// Moves whose copies are done at once.
std::vector<NearPlacement::Move> move(NearPlacement& placement, size_t most) {
  const auto moves = placement.choose_moves(most);
  std::vector<NearPlacement::Move> made(moves.begin(), moves.end());
  for (const NearPlacement::Move& m : made) placement.arrived(m.slot);
  return made;
}

void use(NearPlacement& placement, int32_t layer, std::vector<int32_t> experts) {
  placement.begin_token();
  placement.note_use(LayerId{layer}, experts);
}

TEST(NearPlacement, UsedExpertsFillEmptySlots) {
  NearPlacement placement(kNearShape, 3, {});
  use(placement, 0, {2, 1});
  const auto moves = move(placement, 8);
  ASSERT_EQ(moves.size(), 2u);
  for (const auto& m : moves) EXPECT_FALSE(m.out.has_value());
  EXPECT_TRUE(placement.slot_of(near_key(0, 1)) && placement.slot_of(near_key(0, 2)));
  EXPECT_FALSE(placement.slot_of(near_key(0, 0)).has_value());
}

TEST(NearPlacement, AnExpertOnItsWayIsNotThere) {
  NearPlacement placement(kNearShape, 1, {});
  use(placement, 0, {3});
  ASSERT_EQ(placement.choose_moves(1).size(), 1u);
  EXPECT_FALSE(placement.slot_of(near_key(0, 3)).has_value());
  // Nor may it leave, and nobody else comes into its slot.
  for (int i = 0; i < 9; ++i) use(placement, 1, {0});
  EXPECT_TRUE(placement.choose_moves(1).empty());
  placement.arrived(0);
  EXPECT_EQ(placement.slot_of(near_key(0, 3)), NearPlacement::Slot{0});
}

TEST(NearPlacement, ANewcomerNeedsTwiceTheScore) {
  NearPlacement placement(kNearShape, 1, {.decay = 1.0, .margin = 2.0});
  use(placement, 0, {0});
  move(placement, 1);
  use(placement, 0, {1});
  EXPECT_TRUE(move(placement, 1).empty());
  use(placement, 0, {1});
  EXPECT_TRUE(move(placement, 1).empty()) << "twice is not more than twice";
  use(placement, 0, {1});
  const auto moves = move(placement, 1);
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].out, near_key(0, 0));
  EXPECT_EQ(moves[0].in, near_key(0, 1));
}

TEST(NearPlacement, OldUsesFade) {
  NearPlacement placement(kNearShape, 1, {.decay = 0.5, .margin = 2.0});
  for (int i = 0; i < 10; ++i) use(placement, 0, {0});
  move(placement, 1);
  use(placement, 1, {2});
  EXPECT_TRUE(move(placement, 1).empty());  // 1 against about 1
  use(placement, 1, {2});
  EXPECT_EQ(move(placement, 1).size(), 1u);  // 1.5 against 0.5
}

TEST(NearPlacement, WhoIsUsedLeastLeavesAndNoMoreThanAskedFor) {
  NearPlacement placement(kNearShape, 4, {.decay = 1.0, .margin = 0.5, .moves_per_layer = 8});
  use(placement, 0, {0, 1, 2, 3});
  move(placement, 8);
  use(placement, 0, {0, 1, 3});
  use(placement, 1, {0, 1, 2});
  const auto moves = move(placement, 1);
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].out, near_key(0, 2));
}

TEST(NearPlacement, ALayerChangesFewAtOnce) {
  NearPlacement placement(kNearShape, 4, {.decay = 1.0, .margin = 0.5, .moves_per_layer = 2});
  use(placement, 0, {0, 1, 2, 3});
  move(placement, 8);
  use(placement, 1, {0, 1, 2, 3});
  EXPECT_EQ(move(placement, 8).size(), 2u);
}

TEST(NearPlacement, APromptCountsLess) {
  NearPlacement placement(kNearShape, 1, {.decay = 0.9, .margin = 1.0, .prompt_weight = 0.25});
  placement.note_prompt(LayerId{0}, std::vector<int32_t>{1, 1, 1, 2}, 4);
  const auto moves = move(placement, 1);
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].in, near_key(0, 1));
  // Three quarters of a use; the token of decode counts one.
  use(placement, 0, {2});
  EXPECT_EQ(move(placement, 1).size(), 1u);
}

TEST(NearPlacement, ALongPromptCountsAsManyTokensAsAreRemembered) {
  NearPlacement placement(kNearShape, 1, {.decay = 0.9, .margin = 1.0, .prompt_weight = 0.5});
  // All of 1000 tokens chose it: half of ten uses, which are all that a decay of 0.9 remembers.
  placement.note_prompt(LayerId{0}, std::vector<int32_t>(1000, 1), 1000);
  move(placement, 1);
  for (int i = 0; i < 2; ++i) use(placement, 0, {2});
  EXPECT_TRUE(move(placement, 1).empty());  // 1.9 against 4.05
  for (int i = 0; i < 4; ++i) use(placement, 0, {2});
  EXPECT_EQ(move(placement, 1).size(), 1u);  // 4.7 against 2.7
}

TEST(NearPlacement, OfTwoWorthTheSameTheFirstSlotIsLeft) {
  NearPlacement placement(kNearShape, 2, {.decay = 1.0, .margin = 0.5});
  use(placement, 0, {0, 1});
  move(placement, 2);
  use(placement, 1, {3});
  const auto moves = move(placement, 1);
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].slot, 0u);
}

// Scores are taken down together now and then, here after 333 tokens: nobody gains by it.
TEST(NearPlacement, OldUsesFadeHoweverManyTokensThereWere) {
  for (int idle = 10; idle < 400; ++idle) {
    NearPlacement placement(kNearShape, 1, {.decay = 0.5, .margin = 2.0});
    for (int i = 0; i < 9; ++i) use(placement, 0, {0});
    move(placement, 1);
    for (int i = 0; i < idle; ++i) placement.begin_token();
    use(placement, 0, {1});
    EXPECT_EQ(move(placement, 1).size(), 1u) << idle;
  }
}

TEST(NearPlacement, ManyTokensDoNotOverflow) {
  NearPlacement placement(kNearShape, 2, {.decay = 0.5});
  for (int i = 0; i < 5000; ++i) {
    use(placement, i % 2, {i % 4, (i + 1) % 4});
    move(placement, 4);
    std::set<NearPlacement::Slot> slots;
    for (int32_t l = 0; l < 2; ++l) {
      for (int32_t e = 0; e < 4; ++e) {
        if (const auto slot = placement.slot_of(near_key(l, e))) {
          EXPECT_TRUE(slots.insert(*slot).second);
        }
      }
    }
    ASSERT_EQ(slots.size(), 2u);
  }
}

}  // namespace
}  // namespace moeflux
