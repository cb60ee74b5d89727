// A text goes on with the bits of a model whose experts are all resident while its engine's near
// cache and plan change.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/golden/tiered_test_util.h"
#include "tests/support/expect_error.h"

namespace moeflux::testing {
namespace {

class ReplanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options = model_.options({.near_slots = 3, .ring_slots = 16});
    options.plan = PlanMode::kAuto;
    options.helper = device_.get();
    auto opened = Engine::open(model_.path(), *device_, options);
    ASSERT_TRUE(opened.ok()) << opened.error().to_string();
    engine_ = std::move(opened).value();
    auto sequence = engine_->create_sequence();
    ASSERT_TRUE(sequence.ok());
    sequence_ = std::move(sequence).value();
  }
  /// The text's next tokens, one by one, have the resident model's logits.
  void expect_resident_bits(size_t tokens, const std::string& with) {
    for (size_t i = 0; i < tokens; ++i, ++at_) {
      const auto token = static_cast<TokenId>(7 * at_ % 31 + 1);
      const Status done = engine_->eval(
          *sequence_, std::span(&token, 1), {.phase = StepPhase::kDecode},
          [&](int64_t, std::span<const float> row) {
            const auto expected =
                std::span(model_.resident()).subspan(at_ * row.size(), row.size());
            EXPECT_TRUE(std::ranges::equal(row, expected)) << with << ", token " << at_;
            return Status();
          });
      ASSERT_TRUE(done.ok()) << done.error().to_string();
    }
  }
  void replan(std::optional<uint64_t> near_slots, PlanMode plan) {
    std::optional<uint64_t> bytes;
    if (near_slots) bytes = *near_slots * model_.slot_bytes();
    auto done = Engine::replan(std::move(engine_), {.near_cache_bytes = bytes, .plan = plan});
    ASSERT_TRUE(done.ok()) << done.error().to_string();
    engine_ = std::move(done).value();
  }

  TieredModel model_{"qwen3_5_moe_text"};
  std::unique_ptr<Device> device_ = make_emulator_device(TieredModel::kGpu);
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Sequence> sequence_;
  size_t at_ = 0;
};

TEST_F(ReplanTest, TextsGoOnWithTheSameBits) {
  for (const PlanMode plan :
       {PlanMode::kNear, PlanMode::kHelper, PlanMode::kShared, PlanMode::kAuto}) {
    ASSERT_TRUE(engine_->set_plan(plan).ok());
    expect_resident_bits(2, std::string(plan_name(plan)));
  }
  const uint64_t read = engine_->expert_stats().bytes_read;
  replan(1, PlanMode::kShared);
  EXPECT_EQ(engine_->experts().capacity_bytes(), (model_.num_slots() + 1) * model_.slot_bytes());
  expect_resident_bits(2, "one near slot");
  EXPECT_EQ(engine_->expert_stats().bytes_read, 0u) << "of " << read;
  replan(std::nullopt, PlanMode::kResident);
  expect_resident_bits(2, "all resident");
  EXPECT_EQ(engine_->expert_stats().near_hits, 0u);
  replan(5, PlanMode::kAuto);
  expect_resident_bits(4, "five near slots");
}

TEST_F(ReplanTest, APlanThatIsNotPossibleLeavesTheOneBefore) {
  ASSERT_TRUE(engine_->set_plan(PlanMode::kHelper).ok());
  expect_error(engine_->set_plan(PlanMode::kResident), ErrorCode::kResourceExhausted,
               {"plan resident"});
  const uint64_t helped = engine_->expert_stats().helped_steps;
  expect_resident_bits(1, "helper");
  EXPECT_EQ(engine_->expert_stats().helped_steps, helped + 1);
  replan(3, PlanMode::kNear);
  expect_error(engine_->set_plan(PlanMode::kShared), ErrorCode::kUnsupported, {"plan shared"});
  expect_resident_bits(1, "near");
  EXPECT_EQ(engine_->expert_stats().helped_steps, 0u);
}

}  // namespace
}  // namespace moeflux::testing
