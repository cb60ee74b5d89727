// Every launch of a prefill and of a decode step of one small model on a GPU, as text.
#include "tests/support/plan_trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "backend/gpu/gpu_device.h"
#include "engine/engine.h"
#include "tests/support/golden_file.h"
#include "tests/support/quantized_copy.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

/// The launches of `tokens` in one step behind `before` tokens.
std::string plans_of_step(const std::string& model, size_t before, size_t tokens,
                          bool matrix_units) {
  gpu::PlanLog log;
  const auto device = make_gpu_device(gpu::make_plan_trace_platform(log, matrix_units));
  auto engine = Engine::open(model, *device,
                             {.context_length = 64,
                              .expert_cache_bytes = uint64_t{1} << 30,
                              .lookahead = LookaheadMode::kOff});
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
  if (!engine.ok()) return "";
  auto sequence = (*engine)->create_sequence();
  EXPECT_TRUE(sequence.ok());
  const auto eval = [&](size_t count) {
    const std::vector<TokenId> ids(count, 1);
    const Status done = (*engine)->eval(**sequence, ids, {.logits = LogitsMode::kLast},
                                        [](int64_t, std::span<const float>) { return Status(); });
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().to_string());
  };
  if (before > 0) eval(before);
  log.lines.clear();
  eval(tokens);
  std::string text;
  for (const std::string& line : log.lines) text += line + "\n";
  return text;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void expect_plans(const std::string& name, const std::string& plans) {
  const std::string golden = tests_directory() + "/golden/plans/" + name + ".txt";
  const std::string expected = text_of(golden);
  if (plans == expected) return;
  const std::string got = ::testing::TempDir() + name + ".txt";
  std::ofstream(got) << plans;
  ADD_FAILURE() << "plans differ from " << golden << "; if that is meant, copy " << got;
}

TEST(PlanTrace, PrefillOfASmallModel) {
  const std::string model = tests_directory() + "/golden/models/olmoe";
  expect_plans("olmoe-prefill", plans_of_step(model, 0, 20, false));
}

TEST(PlanTrace, DecodeOfASmallModel) {
  const std::string model = tests_directory() + "/golden/models/olmoe";
  expect_plans("olmoe-decode", plans_of_step(model, 20, 1, false));
}

TEST(PlanTrace, DecodeOfLatentAttention) {
  const TempFolder quantized;
  const TempFolder twin;
  write_quantized_copy(tests_directory() + "/golden/models/deepseek_v3", quantized.path(),
                       twin.path(), {});
  expect_plans("deepseek_v3-units-decode", plans_of_step(quantized.path(), 20, 1, true));
}

TEST(PlanTrace, DecodeOfCompressedAttention) {
  const TempFolder quantized;
  const TempFolder twin;
  write_quantized_copy(tests_directory() + "/golden/models/deepseek_v4", quantized.path(),
                       twin.path(), {});
  expect_plans("deepseek_v4-units-decode", plans_of_step(quantized.path(), 20, 1, true));
}

TEST(PlanTrace, DecodeOnMatrixUnits) {
  const TempFolder quantized;
  const TempFolder twin;
  write_quantized_copy(tests_directory() + "/golden/models/qwen3_5_moe_text", quantized.path(),
                       twin.path(), {});
  expect_plans("qwen3_5-units-decode", plans_of_step(quantized.path(), 20, 1, true));
}

}  // namespace
}  // namespace moeflux::testing
