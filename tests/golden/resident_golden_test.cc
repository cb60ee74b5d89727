// A GPU whose memory holds every expert computes what one that streams them does, bit for bit,
// though a token takes other launches.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/emulator/emulator.h"
#include "backend/gpu/gpu_device.h"
#include "backend/host_top.h"
#include "engine/engine.h"
#include "tests/support/eval_last.h"
#include "tests/support/golden_families.h"
#include "tests/support/golden_file.h"
#include "tests/support/quantized_copy.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

constexpr size_t kTokens = 6;

struct ResidentOutcome {
  std::vector<float> logits;  // of every token
  ExpertStats experts;
};

/// `chunk` tokens at a time.
ResidentOutcome evaluate(const std::string& model, std::optional<uint64_t> memory_bytes,
                         size_t chunk) {
  const auto device = make_gpu_device(
      gpu::make_emulator_platform({.seed = 5, .matrix_units = true, .memory_bytes = memory_bytes}));
  ResidentOutcome outcome;
  auto engine = Engine::open(model, *device, {.context_length = 32});
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
  if (!engine.ok()) return outcome;
  auto sequence = (*engine)->create_sequence();
  EXPECT_TRUE(sequence.ok());
  for (size_t at = 0; at < kTokens; at += chunk) {
    std::vector<TokenId> tokens;
    for (size_t i = at; i < at + chunk; ++i) tokens.push_back(static_cast<TokenId>(7 * i + 1));
    const Status done =
        (*engine)->eval(**sequence, tokens, {.logits = LogitsMode::kAll},
                        [&](int64_t, std::span<const float> rows) {
                          outcome.logits.insert(outcome.logits.end(), rows.begin(), rows.end());
                          return Status();
                        });
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().to_string());
  }
  outcome.experts = (*engine)->expert_stats();
  return outcome;
}

class ResidentGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(ResidentGolden, ResidentExpertsGiveTheBitsOfStreamedOnes) {
  const TempFolder quantized;
  const TempFolder twin;
  write_quantized_copy(golden_folder(GetParam()), quantized.path(), twin.path(), {});
  const ResidentOutcome streamed = evaluate(quantized.path(), std::nullopt, kTokens);
  EXPECT_GT(streamed.experts.hits + streamed.experts.misses, 0u);
  for (const size_t chunk : {size_t{1}, kTokens}) {
    const ResidentOutcome resident = evaluate(quantized.path(), uint64_t{1} << 40, chunk);
    EXPECT_EQ(resident.experts.hits + resident.experts.misses, 0u);
    EXPECT_EQ(resident.logits, streamed.logits) << "chunks of " << chunk;
  }
}

TEST(BestLogits, AreThoseOfTheWholeRow) {
  const std::string model = tests_directory() + "/golden/models/olmoe";
  const auto device =
      make_gpu_device(gpu::make_emulator_platform({.memory_bytes = uint64_t{1} << 40}));
  auto engine = Engine::open(model, *device, {.context_length = 32});
  ASSERT_TRUE(engine.ok()) << engine.error().to_string();
  EXPECT_TRUE((*engine)->state_memory().is_bounded());
  auto sequence = (*engine)->create_sequence();
  auto whole = (*engine)->create_sequence();
  ASSERT_TRUE(sequence.ok() && whole.ok());
  const auto of = static_cast<int32_t>((*engine)->spec().vocab_size) - 3;
  for (const TokenId token : {5, 9, 2}) {
    const auto found =
        eval_best(**engine, **sequence, std::span(&token, 1), {.count = 7, .of = of});
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    const std::vector<TokenLogit> best(found->begin(), found->end());
    const auto last = (*engine)->last_logits();
    ASSERT_TRUE(last.ok());
    const std::vector<float> kept(last->begin(), last->end());
    const auto row = eval_last(**engine, **whole, std::span(&token, 1), StepPhase::kDecode);
    ASSERT_TRUE(row.ok());
    EXPECT_EQ(kept, std::vector<float>(row->begin(), row->end()));
    std::vector<float> values(7);
    std::vector<int32_t> ids(7);
    top_of_row(row->first(static_cast<size_t>(of)), values, ids);
    ASSERT_EQ(best.size(), 7u);
    for (size_t i = 0; i < best.size(); ++i) {
      EXPECT_EQ(best[i].id, ids[i]);
      EXPECT_EQ(best[i].logit, values[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ResidentGolden,
                         ::testing::ValuesIn(moe_families(asked(golden_families()))),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace moeflux::testing
