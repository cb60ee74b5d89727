// Near slots that begin with the experts of a usage profile, and the profile that such a run keeps.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "backend/gpu/emulator/emulator.h"
#include "backend/gpu/gpu_device.h"
#include "engine/engine.h"
#include "tests/support/eval_last.h"
#include "tests/support/golden_file.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

constexpr size_t kSlots = 4;
constexpr TokenId kProfiled = 24;

class TieredProfileTest : public ::testing::Test {
 protected:
  struct Outcome {
    std::vector<float> logits;
    ExpertStats experts;
  };

  // Nobody changes places: what near slots begin with is what they hold.
  Outcome decode(const std::string& profile, bool streams) {
    EngineOptions options{.context_length = 64, .near_cache_bytes = 0, .expert_profile = profile};
    options.placement.margin = 1e9;
    options.near_cache_bytes = kSlots * slot_bytes();
    if (streams) options.expert_cache_bytes = 12 * slot_bytes();
    Outcome outcome;
    auto engine = Engine::open(model_, *device_, options);
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
    if (!engine.ok()) return outcome;
    const auto sequence = std::move((*engine)->create_sequence()).value();
    for (TokenId token = 1; token <= kProfiled; ++token) {
      const auto row = eval_last(**engine, *sequence, std::span(&token, 1), StepPhase::kDecode);
      EXPECT_TRUE(row.ok());
      outcome.logits.insert(outcome.logits.end(), row->begin(), row->end());
    }
    outcome.experts = (*engine)->expert_stats();
    EXPECT_TRUE((*engine)->save_expert_profile().ok());
    return outcome;
  }
  uint64_t slot_bytes() {
    if (slot_bytes_ == 0) {
      const auto probe =
          Engine::open(model_, *device_, {.context_length = 64, .near_cache_bytes = 0});
      EXPECT_TRUE(probe.ok());
      slot_bytes_ = (*probe)->memory_plan().expert_slot_bytes;
    }
    return slot_bytes_;
  }

  const std::string model_ = tests_directory() + "/golden/models/olmoe";
  const TempFolder folder_;
  const std::string path_ = folder_ / "uses.json";
  std::unique_ptr<Device> device_ = make_emulator_device({.memory_bytes = uint64_t{1} << 40});
  uint64_t slot_bytes_ = 0;
};

TEST_F(TieredProfileTest, NearSlotsBeginWithThoseUsedMost) {
  const Outcome first = decode(path_, false);
  const auto profile = UsageProfile::read(path_);
  ASSERT_TRUE(profile.ok()) << profile.error().to_string();
  EXPECT_EQ(profile->tokens, static_cast<uint64_t>(kProfiled) - 2);  // a step is counted two later
  std::vector<uint64_t> uses;
  for (const auto& layer : profile->layers) uses.insert(uses.end(), layer.begin(), layer.end());
  std::ranges::sort(uses, std::greater());
  uint64_t most = 0;
  for (size_t i = 0; i < kSlots; ++i) most += uses[i];
  ASSERT_GT(most, first.experts.near_hits);

  const Outcome second = decode(path_, false);
  EXPECT_EQ(second.experts.near_hits, most);
  EXPECT_EQ(second.experts.promotions, 0u);
  EXPECT_EQ(second.logits, first.logits);
  EXPECT_EQ(UsageProfile::read(path_)->tokens, 2 * (static_cast<uint64_t>(kProfiled) - 2));
}

TEST_F(TieredProfileTest, BeforeADriveItChangesNoBit) {
  const Outcome first = decode(path_, false);
  const Outcome streamed = decode("", true);
  const Outcome seeded = decode(path_, true);
  EXPECT_EQ(streamed.logits, first.logits);
  EXPECT_EQ(seeded.logits, first.logits);
}

}  // namespace
}  // namespace moeflux::testing
