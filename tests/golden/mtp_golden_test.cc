// Layers that predict further tokens against what their reference computed: each row from the
// states that steps of a token left, and chains behind a prompt in steps of every size.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/units.h"
#include "engine/engine.h"
#include "tests/golden/tiered_test_util.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_families.h"
#include "tests/support/golden_file.h"
#include "tests/support/run_model.h"

namespace moeflux::testing {
namespace {

constexpr double kMtpTolerance = 1e-3;
constexpr double kMtpCosineLeast = 0.9999;

std::string mtp_folder(const std::string& family) {
  return tests_directory() + "/golden/mtp/" + family;
}

class MtpGolden : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    const auto& [family, name] = GetParam();
    if (const std::string missing = missing_gpu(name); !missing.empty()) {
      GTEST_SKIP() << "hardware: " << missing;
    }
    device_ = make_test_device({.device = name});
    golden_ = read_golden(mtp_folder(family) + "/golden.safetensors");
    ASSERT_TRUE(device_ != nullptr && golden_.contains("mtp_logits"));
  }
  std::unique_ptr<Engine> open(int64_t chunk) { return open(*device_, chunk); }
  std::unique_ptr<Engine> open(Device& device, int64_t chunk) {
    auto engine = Engine::open(mtp_folder(std::get<0>(GetParam())), device,
                               {.context_length = 64,
                                .expert_cache_bytes = uint64_t{1} << 16,
                                .reader_threads = 1,
                                .prefill_chunk = chunk,
                                .cache_type_k = DType::kF32,
                                .cache_type_v = DType::kF32,
                                .draft_layer = true});
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
    return engine.ok() ? std::move(engine).value() : nullptr;
  }
  void expect_agreement(std::span<const float> found, std::span<const float> expected,
                        const std::string& where) const {
    EXPECT_GE(cosine(found, expected), kMtpCosineLeast) << where;
    if (std::get<1>(GetParam()).starts_with("emulator with")) return;  // 16-bit activations
    EXPECT_LE(max_abs_difference(found, expected), kMtpTolerance) << where;
  }
  /// Evaluates tokens of a sequence without logits.
  static void eval(Engine& engine, Sequence& sequence, std::span<const TokenId> tokens,
                   StepPhase phase) {
    const Status done =
        engine.eval(sequence, tokens, {.logits = LogitsMode::kNone, .phase = phase}, {});
    ASSERT_TRUE(done.ok()) << (done.ok() ? "" : done.error().to_string());
  }
  const std::vector<TokenId>& tokens() { return golden_["tokens"].ints; }
  /// Drafts behind the whole text and what they were chosen from.
  void expect_chain(Engine& engine, Sequence& sequence, int64_t ahead, const std::string& what) {
    const std::vector<TokenId>& chain = golden_["mtp_chain_tokens"].ints;
    std::vector<std::vector<float>> rows;
    const auto drafts = engine.draft(sequence, {.token = next_token(),
                                                .ahead = ahead,
                                                .count = static_cast<int64_t>(chain.size()),
                                                .sink = [&](int64_t, std::span<const float> row) {
                                                  rows.emplace_back(row.begin(), row.end());
                                                  return Status();
                                                }});
    ASSERT_TRUE(drafts.ok()) << (drafts.ok() ? "" : drafts.error().to_string());
    EXPECT_EQ(*drafts, chain) << what;
    ASSERT_EQ(rows.size(), chain.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      expect_agreement(rows[i], golden_["mtp_chain_logits"].row(static_cast<int64_t>(i)),
                       what + ", draft " + std::to_string(i));
    }
  }
  /// The model's own behind the text.
  TokenId next_token() { return golden_["greedy"].ints.front(); }

  std::unique_ptr<Device> device_;
  std::map<std::string, GoldenTensor> golden_;
};

TEST_P(MtpGolden, RowsBehindStepsOfATokenAgree) {
  const auto engine = open(0);
  ASSERT_NE(engine, nullptr);
  auto sequence = engine->create_sequence();
  ASSERT_TRUE(sequence.ok());
  const GoldenTensor& expected = golden_["mtp_logits"];
  for (size_t i = 0; i + 1 < tokens().size(); ++i) {
    eval(*engine, **sequence, std::span(tokens()).subspan(i, 1), StepPhase::kDecode);
    const auto sink = [&](int64_t position, std::span<const float> row) {
      EXPECT_EQ(position, static_cast<int64_t>(i) + 2);
      expect_agreement(row, expected.row(static_cast<int64_t>(i)), "row " + std::to_string(i));
      return Status();
    };
    const auto drafts = engine->draft(**sequence, {.token = tokens()[i + 1], .sink = sink});
    ASSERT_TRUE(drafts.ok() && drafts->size() == 1u);
    EXPECT_EQ(static_cast<size_t>(drafts->front()),
              top_of(expected.row(static_cast<int64_t>(i))).index)
        << i;
  }
}

TEST_P(MtpGolden, ChainsBehindAPromptAgreeWhateverItsSteps) {
  for (const int64_t chunk : {0, 4, 7, 47}) {
    const auto engine = open(chunk);
    ASSERT_NE(engine, nullptr);
    auto sequence = engine->create_sequence();
    ASSERT_TRUE(sequence.ok());
    eval(*engine, **sequence, tokens(), StepPhase::kPrompt);
    expect_chain(*engine, **sequence, 0, "chunk " + std::to_string(chunk));
  }
}

// Drafts that were wrong leave nothing behind, and a layer's rows outlive the text's return.
TEST_P(MtpGolden, ChainsAgreeAfterWrongDraftsAndRestarts) {
  const auto engine = open(0);
  ASSERT_NE(engine, nullptr);
  auto sequence = engine->create_sequence();
  ASSERT_TRUE(sequence.ok());
  const std::span<const TokenId> all = tokens();
  const size_t half = all.size() / 2;
  eval(*engine, **sequence, all.first(half), StepPhase::kPrompt);
  const auto begin = engine->checkpoint(**sequence);
  ASSERT_TRUE(begin.ok());
  // A step whose second half is another text's.
  std::vector<TokenId> wrong(all.begin() + static_cast<ptrdiff_t>(half), all.end());
  for (int i = 0; i < 5; ++i) wrong.push_back((all.front() + i) % 8);
  ASSERT_TRUE(engine->draft(**sequence, {.token = 3, .count = 3}).ok());
  eval(*engine, **sequence, wrong, StepPhase::kDecode);
  ASSERT_TRUE(engine->restore(**sequence, *begin, {.keeps_drafts = true}).ok());
  expect_chain(*engine, **sequence, static_cast<int64_t>(all.size() - half), "restored");
  auto fork = engine->fork(**sequence);
  ASSERT_TRUE(fork.ok());
  eval(*engine, **fork, all.subspan(half), StepPhase::kDecode);
  expect_chain(*engine, **fork, 0, "forked");
  const auto saved = engine->save(**fork);
  ASSERT_TRUE(saved.ok());
  auto loaded = engine->create_sequence();
  ASSERT_TRUE(loaded.ok() && engine->load(**loaded, *saved).ok());
  expect_chain(*engine, **loaded, 0, "loaded");
  ASSERT_TRUE(engine->truncate(**loaded, static_cast<int64_t>(half)).ok());
  eval(*engine, **loaded, all.subspan(half), StepPhase::kDecode);
  expect_chain(*engine, **loaded, 0, "truncated");
}

// Texts of all lengths, of which some want fewer tokens, or end with one that is not likely.
TEST_P(MtpGolden, DraftsOfSeveralTextsInOneCallAreThoseOfEach) {
  const auto engine = open(0);
  ASSERT_NE(engine, nullptr);
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<Engine::DraftItem> items;
  std::vector<std::vector<float>> together;
  std::vector<std::vector<float>> alone;
  const auto into = [](std::vector<std::vector<float>>& rows) {
    return [&rows](int64_t position, std::span<const float> row) {
      rows.emplace_back(row.begin(), row.end());
      rows.back().push_back(static_cast<float>(position));
      return Status();
    };
  };
  const std::array<int64_t, 6> counts = {3, 1, 0, 4, 2, 4};
  for (size_t i = 0; i < counts.size(); ++i) {
    auto sequence = engine->create_sequence();
    ASSERT_TRUE(sequence.ok());
    sequences.push_back(std::move(*sequence));
    // Nothing is known behind an empty one.
    const size_t length = i == 4 ? 0 : 3 + 7 * i;
    if (length > 0) {
      eval(*engine, *sequences.back(), std::span(tokens()).first(length), StepPhase::kPrompt);
    }
    items.push_back({.sequence = sequences.back().get(),
                     .request = {.token = tokens()[length],
                                 .count = counts[i],
                                 .confidence_min = i == 3 ? 1.1f : 0.0f,
                                 .sink = into(together)}});
  }
  ASSERT_TRUE(engine->draft(items).ok());
  for (Engine::DraftItem& item : items) {
    Engine::DraftItem one{.sequence = item.sequence, .request = item.request};
    one.request.sink = into(alone);
    ASSERT_TRUE(engine->draft(std::span(&one, 1)).ok());
    EXPECT_EQ(item.tokens, one.tokens);
    EXPECT_EQ(item.confidences, one.confidences);
  }
  const std::array<size_t, 6> expected = {3, 1, 0, 1, 0, 4};
  for (size_t i = 0; i < items.size(); ++i) EXPECT_EQ(items[i].tokens.size(), expected[i]) << i;
  std::ranges::sort(together);
  std::ranges::sort(alone);
  EXPECT_TRUE(together == alone);
}

class MtpSplit : public MtpGolden {
 protected:
  struct Drafted {
    std::vector<TokenId> tokens;
    std::vector<float> logits;
    friend bool operator==(const Drafted&, const Drafted&) = default;
  };
  /// Drafts behind parts of the text, a wrong step that is taken back, and prompts.
  Drafted drafted(const std::vector<uint64_t>& memory) {
    const std::unique_ptr<Device> device = open_emulators(TieredModel::kGpu, memory);
    EXPECT_NE(device, nullptr);
    const auto engine = open(*device, 7);
    auto sequence = engine->create_sequence();
    EXPECT_TRUE(sequence.ok());
    Drafted all;
    const auto sink = [&](int64_t, std::span<const float> row) {
      all.logits.insert(all.logits.end(), row.begin(), row.end());
      return Status();
    };
    const auto draft = [&](int64_t ahead, TokenId token) {
      const auto drafts =
          engine->draft(**sequence, {.token = token, .ahead = ahead, .count = 3, .sink = sink});
      EXPECT_TRUE(drafts.ok() && drafts->size() == 3u);
      if (drafts.ok()) all.tokens.insert(all.tokens.end(), drafts->begin(), drafts->end());
    };
    const std::span<const TokenId> text = tokens();
    eval(*engine, **sequence, text.first(17), StepPhase::kPrompt);
    draft(0, text[17]);
    const auto begin = engine->checkpoint(**sequence);
    EXPECT_TRUE(begin.ok());
    eval(*engine, **sequence, text.subspan(17, 6), StepPhase::kDecode);
    EXPECT_TRUE(engine->restore(**sequence, *begin, {.keeps_drafts = true}).ok());
    draft(4, text[21]);
    eval(*engine, **sequence, text.subspan(17), StepPhase::kDecode);
    draft(0, next_token());
    return all;
  }
};

TEST_P(MtpSplit, SeveralGpusDraftTheBitsOfOne) {
  const Drafted one = drafted({kGiB});
  EXPECT_FALSE(one.logits.empty());
  EXPECT_EQ(drafted({kGiB, kGiB}), one);
  EXPECT_EQ(drafted({kGiB, 3 * kGiB, 2 * kGiB}), one);
  EXPECT_EQ(drafted({kGiB, kGiB, kGiB, kGiB, kGiB}), one);
}

INSTANTIATE_TEST_SUITE_P(All, MtpSplit,
                         ::testing::Combine(::testing::ValuesIn(asked(mtp_families())),
                                            ::testing::Values("emulator")),
                         family_and_device);

TEST(MtpLayers, AreRefusedByNameWhereThereAreNone) {
  const auto device = make_test_device({.device = "reference"});
  expect_error(Engine::open(golden_folder("llama"), *device, {.draft_layer = true}),
               ErrorCode::kUnsupported, {"MTP layers", "llama"});
  expect_error(Engine::open(golden_folder("glm4_moe"), *device, {.draft_layer = true}),
               ErrorCode::kNotFound, {"no MTP layer", "layers.4.enorm.weight"});
}

INSTANTIATE_TEST_SUITE_P(
    All, MtpGolden,
    ::testing::Combine(::testing::ValuesIn(asked(mtp_families())),
                       ::testing::ValuesIn(and_built_gpus({"reference", "cpu", "emulator",
                                                           "emulator with matrix units"}))),
    family_and_device);

}  // namespace
}  // namespace moeflux::testing
