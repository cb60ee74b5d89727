// Texts of 1,100 tokens, longer than four pages of keys, two chunks of a prompt and the ring of a
// window, against what the reference implementation makes of them (tools/oracles/long_golden.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "state/sequence_state.h"
#include "tests/support/golden_families.h"
#include "tests/support/golden_file.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

// Ten times what is measured: 2e-5 in qwen3_next, 8e-6 and less in the others. A token of the first
// hundreds that is another one moves the last logits by 6e-3 and more.
constexpr double kLongTolerance = 2e-4;
// Keys and values are off by 2^-11 of themselves: 1.6e-3 and less are measured.
constexpr double kLongF16Tolerance = 5e-3;
constexpr size_t kVocab = 256;
constexpr int64_t kLongContext = 2048;  // the models say 512, of which no number of theirs depends

class LongGolden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    golden_ = read_golden(tests_directory() + "/golden/long/" + GetParam() + ".safetensors");
    ASSERT_TRUE(golden_.contains("tokens") && golden_.contains("checks"));
    const std::string folder = golden_folder(GetParam());
    auto config = parse_json(read_bytes(folder + "/config.json"), "config");
    ASSERT_TRUE(config.ok());
    (*config)["max_position_embeddings"] = kLongContext;
    write_bytes(folder_ / "config.json", config->dump());
    write_bytes(folder_ / "model.safetensors", read_bytes(folder + "/model.safetensors"));
  }
  const std::vector<TokenId>& tokens() { return golden_["tokens"].ints; }
  RunOutput run(const RunOptions& options) { return run_model(folder_.path(), tokens(), options); }
  /// Rows of the positions from `from` on, all but so many.
  void expect_agreement(std::span<const float> logits, int64_t from, double tolerance,
                        int64_t off_max = 0);

  TempFolder folder_;
  std::map<std::string, GoldenTensor> golden_;
};

/// By how much a row is off: of its greatest logits, of those that should be less than these, and
/// of the sums over all of them.
struct Off {
  double top = 0.0;
  double others = 0.0;
  double sums = 0.0;
};

Off off_by(std::span<const float> row, std::span<const int32_t> ids, std::span<const float> best,
           std::span<const float> checks) {
  Off off;
  double projection = 0.0;
  double squares = 0.0;
  for (size_t i = 0; i < row.size(); ++i) {
    projection += row[i] * std::sin(static_cast<double>(i + 1));
    squares += static_cast<double>(row[i]) * row[i];
    const auto found = std::ranges::find(ids, static_cast<int32_t>(i));
    if (found == ids.end()) {
      off.others = std::max<double>(off.others, row[i] - best.back());
      continue;
    }
    const auto at = static_cast<size_t>(found - ids.begin());
    off.top = std::max<double>(off.top, std::abs(row[i] - best[at]));
  }
  off.sums = std::max(std::abs(projection - checks[0]), std::abs(std::sqrt(squares) - checks[1]));
  return off;
}

void LongGolden::expect_agreement(std::span<const float> logits, int64_t from, double tolerance,
                                  int64_t off_max) {
  const GoldenTensor& best = golden_["top_logits"];
  const GoldenTensor& ids = golden_["top_ids"];
  const auto top = static_cast<size_t>(best.shape.back());
  // A sum of as many errors, each of its own sign.
  const double of_sums = tolerance * std::sqrt(static_cast<double>(kVocab));
  ASSERT_FALSE(logits.empty());
  int64_t positions_off = 0;
  for (int64_t i = from; !logits.empty(); ++i, logits = logits.subspan(kVocab)) {
    const Off off =
        off_by(logits.first(kVocab), std::span(ids.ints).subspan(static_cast<size_t>(i) * top, top),
               best.row(i), golden_["checks"].row(i));
    if (off.top <= tolerance && off.others <= tolerance && off.sums <= of_sums) continue;
    ASSERT_LT(positions_off, off_max)
        << "position " << i << ": the best are off by " << off.top << ", others above them by "
        << off.others << ", sums off by " << off.sums;
    ++positions_off;
  }
  RecordProperty("positions_off", std::to_string(positions_off));
}

TEST_P(LongGolden, EveryPositionAgreesInPrefillAndTokenByToken) {
  ASSERT_GT(tokens().size(), 4u * SequenceState::kPageTokens);
  ASSERT_GT(tokens().size(), 2u * kPrefillChunkUsual);
  const RunOutput whole = run({.cache_type = DType::kF32});
  ASSERT_EQ(whole.logits.size(), tokens().size() * kVocab);
  expect_agreement(whole.logits, 0, kLongTolerance);
  // Rings of two pages, written in chunks and a token at a time.
  for (const int64_t chunk : {100, 1}) {
    const RunOutput cut = run({.cache_type = DType::kF32, .prefill_chunk = chunk});
    EXPECT_EQ(cut.logits, whole.logits) << "chunks of " << chunk;
  }
}

// Where keys are chosen, rounding may choose others of nearly the same score.
TEST_P(LongGolden, EveryPositionAgreesWithKeysInF16) {
  const RunOutput run = this->run({.cache_type = DType::kF16});
  ASSERT_EQ(run.logits.size(), tokens().size() * kVocab);
  expect_agreement(run.logits, 0, kLongF16Tolerance, GetParam() == "deepseek_v32" ? 11 : 0);
}

// An emulated GPU would take minutes from the beginning.
TEST_P(LongGolden, AnEmulatedGpuThatTakesTheTextOverFromTheCpuAgrees) {
  constexpr size_t kTakenOver = 1020;  // four before a page begins, and a ring of two
  constexpr size_t kPrompt = 8;
  constexpr size_t kDecoded = 3;
  const EngineOptions options{.context_length = static_cast<int64_t>(tokens().size()),
                              .reader_threads = 2,
                              .prefill_chunk = kPrompt,
                              .cache_type_k = DType::kF32,
                              .cache_type_v = DType::kF32};
  const auto cpu = make_test_device({});
  const auto emulator = make_test_device({.device = "emulator with matrix units"});
  const auto first = Engine::open(folder_.path(), *cpu, options);
  const auto second = Engine::open(folder_.path(), *emulator, options);
  ASSERT_TRUE(first.ok() && second.ok());
  const auto begun = (*first)->create_sequence();
  const auto taken = (*second)->create_sequence();
  ASSERT_TRUE(begun.ok() && taken.ok());
  const std::span<const TokenId> text = tokens();
  ASSERT_TRUE(
      (*first)->eval(**begun, text.first(kTakenOver), {.logits = LogitsMode::kNone}, {}).ok());
  const auto snapshot = (*first)->save(**begun);
  ASSERT_TRUE(snapshot.ok());
  ASSERT_TRUE((*second)->load(**taken, *snapshot).ok());
  std::vector<float> logits;
  for (size_t at = kTakenOver; at < kTakenOver + kPrompt + kDecoded;) {
    const size_t rows = at == kTakenOver ? kPrompt : 1;
    const Status done =
        (*second)->eval(**taken, text.subspan(at, rows), {.logits = LogitsMode::kAll},
                        [&](int64_t, std::span<const float> more) {
                          logits.insert(logits.end(), more.begin(), more.end());
                          return Status();
                        });
    ASSERT_TRUE(done.ok()) << done.error().to_string();
    at += rows;
  }
  ASSERT_EQ(logits.size(), (kPrompt + kDecoded) * kVocab);
  expect_agreement(logits, kTakenOver, kLongTolerance);
}

// Two windows, a recurrence, latents, pooled entries, chosen keys.
// Queries of its layers without positions grow from position to position, which shows only here.
TEST(BeamGolden, TheLastOf2304PositionsAgree) {
  const std::string folder = golden_folder("beam");
  auto golden = read_golden(folder + "/golden.safetensors");
  ASSERT_TRUE(golden.contains("tokens_long") && golden.contains("logits_long"));
  auto config = parse_json(read_bytes(folder + "/config.json"), "config");
  ASSERT_TRUE(config.ok());
  (*config)["max_position_embeddings"] = 4096;
  const TempFolder longer;
  write_bytes(longer / "config.json", config->dump());
  write_bytes(longer / "model.safetensors", read_bytes(folder + "/model.safetensors"));
  const std::vector<TokenId>& tokens = golden["tokens_long"].ints;
  const RunOutput output =
      run_model(longer.path(), tokens, {.device = "cpu", .cache_type = DType::kF32});
  const GoldenTensor& expected = golden["logits_long"];
  ASSERT_EQ(output.logits.size(), tokens.size() * kVocab);
  const auto skipped = static_cast<int64_t>(tokens.size()) - expected.rows();
  for (int64_t i = 0; i < expected.rows(); ++i) {
    EXPECT_LE(max_abs_difference(output.row(skipped + i), expected.row(i)), 1e-3) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, LongGolden,
                         ::testing::Values("gpt_oss", "mimo_v2_flash", "qwen3_next", "deepseek_v3",
                                           "deepseek_v4", "deepseek_v32"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace moeflux::testing
