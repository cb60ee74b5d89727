// Wherever experts lie, however they change places and whenever copies are made: the bits of a
// device that holds them all. One draw again:
//
//   MOEFLUX_TEST_TIERED_DRAW=123 golden_test --gtest_filter='*TieredDraws*'
//
// MOEFLUX_TEST_TIERED_DRAWS says how many of them the suite tries, of all families, which it
// chooses from for a single draw too. Without it there are fewer, of three families: one each with
// ordinary attention, with recurrent layers, and with latent attention behind dense layers.
// MOEFLUX_TEST_TIERED_DEVICE (emulator) may name a GPU.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>

#include "base/format.h"
#include "tests/golden/tiered_test_util.h"
#include "tests/support/soak.h"

namespace moeflux::testing {
namespace {

constexpr uint64_t kDrawsUsual = 48;
constexpr uint64_t kShares = 4;  // of the draws, each a test of its own
const std::vector<std::string> kFamiliesUsual = {"olmoe", "qwen3_5_moe_text", "deepseek_v3"};

struct Draw {
  std::string family;
  Tiers tiers;
  size_t chunk = 1;
  uint64_t copy_seed = 0;
  uint64_t order_seed = 0;
  PlanMode plan = PlanMode::kNear;
  std::vector<uint64_t> gpus;  // by what they have of the memory
};

std::string text_of(const Draw& draw) {
  const Tiers& t = draw.tiers;
  std::string gpus;
  for (const uint64_t weight : draw.gpus)
    gpus += formatted("{}{}", gpus.empty() ? "" : ":", weight);
  return formatted(
      "{}: {} near, {} far, {} in the ring, margin {}, lookahead {}, chunks of {}, copies {}, "
      "order {}, plan {}, GPUs {}",
      draw.family, t.near_slots, t.far_slots ? formatted("{}", *t.far_slots) : "all", t.ring_slots,
      t.margin, t.lookahead == LookaheadMode::kOn ? "on" : "off", draw.chunk, draw.copy_seed,
      draw.order_seed, plan_name(draw.plan), gpus);
}

std::string tiered_device() {
  const char* const name = std::getenv("MOEFLUX_TEST_TIERED_DEVICE");
  return name == nullptr ? "emulator" : name;
}

class TieredDraws : public ::testing::TestWithParam<uint64_t> {
 protected:
  const TieredModel& model_of(const std::string& family) {
    std::unique_ptr<TieredModel>& model = models_[family];
    if (model == nullptr) model = std::make_unique<TieredModel>(family, tiered_device());
    return *model;
  }

  /// Every part of a draw is a number of its own, so that all draws differ in many.
  Draw draw_of(uint64_t seed, const std::vector<std::string>& families) {
    std::mt19937_64 random(seed * 0x9e3779b97f4a7c15u + 1);
    const auto one_of = [&](const std::vector<uint64_t>& values) {
      return values[random() % values.size()];
    };
    Draw draw;
    draw.family = families[random() % families.size()];
    const uint64_t all = model_of(draw.family).num_slots();
    const uint64_t many = 3 + random() % (all - 4);
    draw.tiers.near_slots = one_of({1, 2, 4, many, all - 1});
    const bool streams = random() % 2 == 0;
    if (streams) {
      draw.tiers.far_slots = one_of({1, 3, all / 2, 1 + random() % (all - 2), all - 2});
      draw.tiers.near_slots = std::min(draw.tiers.near_slots, all - 1 - *draw.tiers.far_slots);
    }
    draw.tiers.ring_slots = one_of({0, 16, 24, 32, 96});
    draw.tiers.margin = random() % 2 == 0 ? 0.0 : 2.0;
    draw.tiers.lookahead = random() % 4 == 0 ? LookaheadMode::kOff : LookaheadMode::kOn;
    draw.chunk = one_of({1, 3, 9, 30});
    draw.copy_seed = random() % 1000000;
    draw.order_seed = random() % 1000000;
    constexpr std::array kPlans = {PlanMode::kNear, PlanMode::kHelper, PlanMode::kShared,
                                   PlanMode::kAuto};
    draw.plan = kPlans[random() % kPlans.size()];
    const uint64_t gpus = tiered_device() == "emulator" ? one_of({1, 1, 2, 3, 4}) : 1;
    for (uint64_t i = 0; i < gpus; ++i) draw.gpus.push_back(one_of({1, 3, 8}));
    return draw;
  }

  void expect_resident_bits(const Draw& draw) {
    const TieredModel& model = model_of(draw.family);
    gpu::EmulatorOptions gpu = TieredModel::kGpu;
    gpu.seed = draw.order_seed;
    gpu.copy_seed = draw.copy_seed;
    std::vector<uint64_t> memory;
    for (const uint64_t weight : draw.gpus) memory.push_back(weight * *gpu.memory_bytes);
    const std::unique_ptr<Device> device = tiered_device() == "emulator"
                                               ? open_emulators(gpu, memory)
                                               : open_tiered_device(tiered_device(), gpu);
    EngineOptions options = model.options(draw.tiers);
    options.plan = draw.plan;
    options.helper = device.get();
    auto engine = Engine::open(model.path(), *device, options);
    Result<std::vector<float>> logits =
        engine.ok() ? evaluate_text(**engine, draw.chunk) : engine.error();
    const std::string again = "\nagain: " + again_;
    if (!logits.ok()) {
      ADD_FAILURE() << text_of(draw) << ": " << logits.error().to_string() << again;
      return;
    }
    const std::vector<float>& expected = model.resident();
    const bool is_same =
        logits->size() == expected.size() &&
        std::memcmp(logits->data(), expected.data(), expected.size() * sizeof(float)) == 0;
    EXPECT_TRUE(is_same) << text_of(draw) << ": other logits than where all are resident" << again;
    stats_ += (*engine)->expert_stats();
  }

  std::map<std::string, std::unique_ptr<TieredModel>> models_;
  ExpertStats stats_;
  std::string again_;
};

TEST_P(TieredDraws, HaveTheBitsOfResidentExperts) {
  const std::optional<uint64_t> one = number_from("MOEFLUX_TEST_TIERED_DRAW");
  const std::optional<uint64_t> wanted = number_from("MOEFLUX_TEST_TIERED_DRAWS");
  const std::vector<std::string> families = wanted ? moe_families() : kFamiliesUsual;
  for (uint64_t seed = GetParam(); seed < wanted.value_or(kDrawsUsual); seed += kShares) {
    if (one && GetParam() != *one % kShares) return;
    const uint64_t tried = one.value_or(seed);
    again_ = formatted("{}MOEFLUX_TEST_TIERED_DRAW={} golden_test --gtest_filter='*TieredDraws*'",
                       wanted ? formatted("MOEFLUX_TEST_TIERED_DRAWS={} ", *wanted) : "", tried);
    expect_resident_bits(draw_of(tried, families));
    if (one || HasFailure()) return;
  }
  if (wanted && *wanted < kDrawsUsual) return;
  // Draws that moved nothing would be no test.
  EXPECT_GT(stats_.near_hits, 0u);
  EXPECT_GT(stats_.far_hits, 0u);
  EXPECT_GT(stats_.promotions, 0u);
  EXPECT_GT(stats_.helped_steps, 0u);
  EXPECT_GT(stats_.misses, 0u);
  EXPECT_GT(stats_.lookahead_us, 0u);  // early routers ran; so few experts are not read early
}

INSTANTIATE_TEST_SUITE_P(All, TieredDraws, ::testing::Range(uint64_t{0}, kShares));

}  // namespace
}  // namespace moeflux::testing
