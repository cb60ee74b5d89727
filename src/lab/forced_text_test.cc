// Forced texts are written token for token, in as many steps as their repetitions allow.
#include "lab/forced_text.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "chat/model_text.h"
#include "engine/tiny_engine_test_util.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using Tokens = std::vector<TokenId>;

std::string source_file(const std::string& name) {
  std::ifstream file(std::string(MOEFLUX_SOURCE_DIR) + "/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

const std::string& fable() {
  static const std::string folder = std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m";
  return folder;
}

std::shared_ptr<OpenModel> open_at(const std::string& folder, int64_t context,
                                   const DraftOptions& drafts = {}) {
  auto model = open_model(folder, {.device = {.threads = 1},
                                   .engine = {.context_length = context,
                                              .expert_cache_bytes = uint64_t{1} << 30,
                                              .reader_threads = 1,
                                              .prefill_chunk = 512},
                                   .drafts = drafts});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().to_string());
  return model.ok() ? std::move(model).value() : nullptr;
}

int64_t written(std::span<const ForcedPart> parts) {
  int64_t tokens = 0;
  for (const ForcedPart& part : parts) {
    if (!part.is_prompt) tokens += static_cast<int64_t>(part.tokens.size());
  }
  return tokens;
}

class ForcedTextTest : public TinyEngineTest {
 protected:
  // The text behind the prompt repeats it but for the eleventh token.
  static std::vector<ForcedPart> copy_with_an_edit() {
    Tokens prompt;
    for (TokenId token = 1; token <= 30; ++token) prompt.push_back(token);
    Tokens copy = prompt;
    copy[10] = 40;
    return {{.tokens = prompt, .is_prompt = true}, {.tokens = copy}};
  }
  static ForcedRun run(const std::shared_ptr<OpenModel>& model, const DraftOptions& drafts) {
    const auto done = run_forced_text(model, copy_with_an_edit(), drafts);
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().to_string());
    return done.ok() ? *done : ForcedRun();
  }
};

// The first token comes from the prompt's logits, and a step tells the one behind its own.
TEST_F(ForcedTextTest, TakesAStepForEachTokenWithoutDrafts) {
  const ForcedRun done = run(open_at(folder_.path(), 128), {.mode = DraftMode::kOff});
  EXPECT_EQ(done.steps, 29);
  EXPECT_EQ(done.rows, 29);
  EXPECT_EQ(done.tokens, 29);
  EXPECT_EQ(done.drafts.drafted, 0);
  EXPECT_EQ(done.tokens_per_step(), 1.0);
  ASSERT_EQ(done.sizes.size(), 1u);
  EXPECT_EQ(done.sizes.at(1).steps, 29);
  EXPECT_GE(done.sizes.at(1).seconds, 29 * done.sizes.at(1).least_seconds);
}

TEST_F(ForcedTextTest, DraftsAreAcceptedAsTheTextAcceptsThem) {
  write_attention_model();
  const ForcedRun done =
      run(open_at(folder_.path(), 128), {.mode = DraftMode::kOn, .match_min = 4});
  EXPECT_EQ(done.tokens, 29);
  EXPECT_EQ(done.drafts.accepted, done.tokens - done.steps);
  EXPECT_GT(done.drafts.accepted, 10);
  EXPECT_LT(done.drafts.accepted, done.drafts.drafted);
}

// Accepted tokens behind a wrong draft are evaluated again where layers cannot forget.
TEST_F(ForcedTextTest, StatesOfAFixedSizeTakeRowsAndNoSteps) {
  const ForcedRun hybrid =
      run(open_at(folder_.path(), 128), {.mode = DraftMode::kOn, .match_min = 4});
  write_attention_model();
  const ForcedRun other =
      run(open_at(folder_.path(), 128), {.mode = DraftMode::kOn, .match_min = 4});
  EXPECT_EQ(hybrid.steps, other.steps);
  EXPECT_EQ(hybrid.drafts.accepted, other.drafts.accepted);
  EXPECT_GT(hybrid.rows, other.rows);
}

TEST_F(ForcedTextTest, PairsRunInTurn) {
  int finished = 0;
  const auto pairs = run_forced_pairs(open_at(folder_.path(), 128), copy_with_an_edit(),
                                      {.drafts = {.mode = DraftMode::kOn, .match_min = 4},
                                       .pairs = 3,
                                       .progress = [&](int n) { finished = n; }});
  ASSERT_TRUE(pairs.ok()) << pairs.error().to_string();
  EXPECT_EQ(finished, 7);
  ASSERT_EQ(pairs->with.size(), 3u);
  ASSERT_EQ(pairs->without.size(), 3u);
  for (const ForcedRun& one : pairs->without) EXPECT_EQ(one.drafts.drafted, 0);
  for (const ForcedRun& one : pairs->with) EXPECT_GT(one.drafts.drafted, 0);
  EXPECT_GT(pairs->gain(), 0.0);
}

TEST_F(ForcedTextTest, RefusesATokenOutsideTheVocabulary) {
  const std::vector<ForcedPart> parts = {{.tokens = {1}, .is_prompt = true}, {.tokens = {64}}};
  testing::expect_error(run_forced_text(open_at(folder_.path(), 128), parts, {}),
                        ErrorCode::kInvalidArgument, {"token 64", "vocabulary has 64"});
}

TEST(ForcedParts, AlternateAtFormFeeds) {
  const auto tokenizer = load_tokenizer(fable());
  ASSERT_TRUE(tokenizer.ok());
  const auto parts = forced_parts("one\ftwo\fthree\ffour", *tokenizer);
  ASSERT_TRUE(parts.ok()) << parts.error().to_string();
  ASSERT_EQ(parts->size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ((*parts)[i].is_prompt, i % 2 == 0);
  EXPECT_EQ(tokenizer->decode((*parts)[2].tokens), "three");
  const auto whole = forced_parts("one and two", *tokenizer);
  ASSERT_TRUE(whole.ok());
  ASSERT_EQ(whole->size(), 2u);
  EXPECT_EQ(whole->front().tokens.size(), 1u);
  EXPECT_FALSE(whole->back().is_prompt);
}

TEST(ForcedParts, WithoutTokensAreRefused) {
  const auto tokenizer = load_tokenizer(fable());
  ASSERT_TRUE(tokenizer.ok());
  testing::expect_error(forced_parts("", *tokenizer), ErrorCode::kInvalidArgument, {"part 1"});
  testing::expect_error(forced_parts("a", *tokenizer), ErrorCode::kInvalidArgument, {"part 2"});
  testing::expect_error(forced_parts("one\f", *tokenizer), ErrorCode::kInvalidArgument, {"part 2"});
  testing::expect_error(forced_parts("one\f\fb\fc", *tokenizer), ErrorCode::kInvalidArgument,
                        {"part 2"});
}

struct TextCounts {
  const char* name;
  int64_t tokens;
  int64_t steps;
  int64_t drafted;
  int64_t accepted;
};

void PrintTo(const TextCounts& counts, std::ostream* out) { *out << counts.name; }

class BenchmarkTexts : public ::testing::TestWithParam<TextCounts> {};

// All that drafts find in the texts of benchmarks/texts; a draft that pays is another question.
TEST_P(BenchmarkTexts, TakeSoManySteps) {
  const TextCounts& expected = GetParam();
  const auto tokenizer = load_tokenizer(fable());
  ASSERT_TRUE(tokenizer.ok());
  const auto parts = forced_parts(
      source_file(std::string("benchmarks/texts/") + expected.name + ".txt"), *tokenizer);
  ASSERT_TRUE(parts.ok()) << parts.error().to_string();
  EXPECT_EQ(written(*parts), expected.tokens);
  const auto done = run_forced_text(open_at(fable(), 4096), *parts, {.mode = DraftMode::kOn});
  ASSERT_TRUE(done.ok()) << done.error().to_string();
  EXPECT_EQ(done->steps, expected.steps);
  EXPECT_EQ(done->drafts.drafted, expected.drafted);
  EXPECT_EQ(done->drafts.accepted, expected.accepted);
}

// 0.24 in torch, over all of the text. Precisions differ by processor.
TEST(ForcedTexts, TheEmbeddedModelsMtpLayerIsRightAsOftenAsWhereItWasTrained) {
  const auto tokenizer = load_tokenizer(fable());
  ASSERT_TRUE(tokenizer.ok());
  auto parts = forced_parts(source_file("benchmarks/texts/prose.txt"), *tokenizer);
  ASSERT_TRUE(parts.ok()) << parts.error().to_string();
  parts->back().tokens.resize(800);
  const DraftOptions drafts{.mode = DraftMode::kOn, .mtp_tokens = 1};
  const auto done = run_forced_text(open_at(fable(), 1024, drafts), *parts, drafts);
  ASSERT_TRUE(done.ok()) << done.error().to_string();
  EXPECT_EQ(done->tokens, 799);
  const double each = double(done->drafts.accepted) / double(done->drafts.drafted);
  EXPECT_GT(each, 0.18);
  EXPECT_LT(each, 0.30);
}

INSTANTIATE_TEST_SUITE_P(All, BenchmarkTexts,
                         ::testing::Values(TextCounts{"prose", 3859, 3846, 22, 12},
                                           TextCounts{"edit", 1882, 342, 1923, 1539},
                                           TextCounts{"array", 3951, 1184, 3516, 2766},
                                           TextCounts{"chat", 3004, 2983, 24, 8},
                                           TextCounts{"tools", 2181, 696, 2204, 1473}),
                         [](const auto& text) { return std::string(text.param.name); });

}  // namespace
}  // namespace moeflux
