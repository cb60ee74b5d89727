#include "chat/text_generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "backend/gpu/emulator/emulator.h"
#include "backend/gpu/gpu_device.h"
#include "io/file.h"
#include "tests/support/expect_error.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using testing::expect_error;

struct Generated {
  std::string text;
  std::vector<std::string> pieces;
  GenerateResult result;
};

class GenerateTest : public ::testing::Test {
 protected:
  using Tokens = std::vector<TokenId>;

  static std::string fable() { return std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m"; }

  std::unique_ptr<Engine> open(int64_t context) {
    auto engine =
        Engine::open(fable(), *device_, {.context_length = context, .expert_cache_bytes = 1 << 20});
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
    return std::move(engine).value();
  }
  static Tokenizer load_tokenizer() {
    const auto json = read_text_file(fable() + "/tokenizer.json", uint64_t{1} << 30);
    EXPECT_TRUE(json.ok());
    auto tokenizer = Tokenizer::parse(*json, "tokenizer.json");
    EXPECT_TRUE(tokenizer.ok());
    return std::move(tokenizer).value();
  }

  Generated run(Engine& engine, const GenerateOptions& options, const TextSink& also = {}) {
    Generated generated;
    auto sequence = engine.create_sequence();
    EXPECT_TRUE(sequence.ok());
    const Status done = generate(
        engine, tokenizer_, **sequence, prompt_, options,
        [&](std::string_view text) {
          generated.pieces.emplace_back(text);
          generated.text += text;
          return !also || also(text);
        },
        generated.result);
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().to_string());
    return generated;
  }

  /// What generate() should sample, one engine call at a time.
  Tokens sample(Engine& engine, const SamplerOptions& options, size_t n) {
    auto sampler = Sampler::create(options);
    auto sequence = engine.create_sequence();
    EXPECT_TRUE(sampler.ok() && sequence.ok());
    for (const TokenId token : prompt_) sampler->accept(token);
    Tokens next = prompt_;
    Tokens tokens;
    while (tokens.size() < n) {
      const auto logits = engine.eval_last(**sequence, next);
      EXPECT_TRUE(logits.ok());
      const auto token = sampler->sample(*logits);
      EXPECT_TRUE(token.ok());
      sampler->accept(*token);
      tokens.push_back(*token);
      next = {*token};
    }
    return tokens;
  }

  std::unique_ptr<Device> device_ = testing::make_test_device({});
  Tokenizer tokenizer_ = load_tokenizer();
  Tokens prompt_ = *tokenizer_.encode("Once upon a time");
};

TEST_F(GenerateTest, SameSeedGivesTheSameText) {
  const auto engine = open(256);
  const auto text = [&](uint64_t seed) {
    return run(*engine, {.tokens_max = 40, .sampler = {.seed = seed}}).text;
  };
  const std::string first = text(7);
  EXPECT_GT(first.size(), 40u);
  EXPECT_EQ(text(7), first);
  EXPECT_NE(text(8), first);
}

TEST_F(GenerateTest, ADeviceThatReadsTheBestLogitsBackGivesTheSameText) {
  const auto device =
      make_gpu_device(gpu::make_emulator_platform({.memory_bytes = uint64_t{1} << 40}));
  auto engine = Engine::open(fable(), *device, {.context_length = 16});
  ASSERT_TRUE(engine.ok()) << engine.error().to_string();
  ASSERT_TRUE((*engine)->has_fast_best());
  const SamplerOptions options{.top_k = 5, .seed = 3};
  const Tokens expected = sample(**engine, options, 3);
  EXPECT_EQ(run(**engine, {.tokens_max = 3, .sampler = options}).text, tokenizer_.decode(expected));
  // Text that goes on ends with all logits of its last token.
  auto sequence = (*engine)->create_sequence();
  auto sampler = Sampler::create(options);
  ASSERT_TRUE(sequence.ok() && sampler.ok());
  const auto first = (*engine)->eval_last(**sequence, prompt_);
  ASSERT_TRUE(first.ok());
  std::vector<float> logits(first->begin(), first->end());
  const auto went_on = continue_text(**engine, tokenizer_, **sequence, *sampler, logits,
                                     {.tokens_max = 2}, [](std::string_view) { return true; });
  ASSERT_TRUE(went_on.ok()) << went_on.error().to_string();
  ASSERT_TRUE((*engine)->truncate(**sequence, (*sequence)->length() - 1).ok());
  const auto last = (*engine)->eval_last(**sequence, std::span(expected).subspan(1, 1));
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(logits, std::vector<float>(last->begin(), last->end()));
}

TEST_F(GenerateTest, PiecesTogetherAreTheDecodedTokens) {
  const auto engine = open(256);
  for (const SamplerOptions& sampler :
       {SamplerOptions{.temperature = 0}, SamplerOptions{.repeat_penalty = 1.3f, .seed = 3}}) {
    const Generated generated = run(*engine, {.tokens_max = 60, .sampler = sampler});
    EXPECT_EQ(generated.text, tokenizer_.decode(sample(*engine, sampler, 60)));
    EXPECT_EQ(generated.result.reason, FinishReason::kTokensMax);
  }
}

TEST_F(GenerateTest, HalvesOfCharactersAreHeldBackUntilTheEnd) {
  const auto engine = open(64);
  const std::optional<TokenId> half = tokenizer_.find("\xE2");
  ASSERT_TRUE(half.has_value());
  const SamplerOptions always_half{.temperature = 0, .logit_bias = {{*half, 1e6f}}};
  const Generated generated = run(*engine, {.tokens_max = 3, .sampler = always_half});
  EXPECT_EQ(generated.text, tokenizer_.decode(Tokens{*half, *half, *half}));
  EXPECT_EQ(generated.pieces.front(), "");
  EXPECT_EQ(generated.pieces.back(), "\xEF\xBF\xBD");
}

TEST_F(GenerateTest, CountsTokensAndSteps) {
  const auto engine = open(256);
  for (const int64_t n : {0, 1, 17}) {
    const Generated generated = run(*engine, {.tokens_max = n});
    EXPECT_EQ(generated.result.reason, FinishReason::kTokensMax);
    EXPECT_EQ(generated.result.generated_tokens, n);
    // The first token comes from the prompt's logits.
    EXPECT_EQ(generated.result.decode_steps, std::max<int64_t>(n - 1, 0));
    EXPECT_EQ(generated.result.prompt_tokens, static_cast<int64_t>(prompt_.size()));
    EXPECT_EQ(generated.text.empty(), n == 0);
  }
}

TEST_F(GenerateTest, StopTokenEndsTheTextAndIsNotPartOfIt) {
  const auto engine = open(256);
  const SamplerOptions greedy{.temperature = 0};
  const Tokens tokens = sample(*engine, greedy, 20);
  const TokenId stop = tokens[9];
  const auto first = std::find(tokens.begin(), tokens.end(), stop);
  const Generated generated =
      run(*engine, {.tokens_max = 20, .sampler = greedy, .stop_tokens = {-5, stop}});
  EXPECT_EQ(generated.result.reason, FinishReason::kStopToken);
  EXPECT_EQ(generated.result.generated_tokens, first - tokens.begin());
  EXPECT_EQ(generated.text, tokenizer_.decode(Tokens(tokens.begin(), first)));
}

TEST_F(GenerateTest, StopStringEndsTheTextBeforeIt) {
  const auto engine = open(256);
  const SamplerOptions greedy{.temperature = 0};
  const std::string whole = run(*engine, {.tokens_max = 30, .sampler = greedy}).text;
  const std::string stop = whole.substr(whole.size() / 2, 5);
  const Generated generated =
      run(*engine, {.tokens_max = 30, .sampler = greedy, .stop_strings = {"absent", stop}});
  EXPECT_EQ(generated.result.reason, FinishReason::kStopString);
  EXPECT_EQ(generated.text, whole.substr(0, whole.find(stop)));
}

TEST_F(GenerateTest, FullContextEndsTheText) {
  const auto engine = open(20);
  const auto prompt_tokens = static_cast<int64_t>(prompt_.size());
  const SamplerOptions greedy{.temperature = 0};
  const Generated generated = run(*engine, {.tokens_max = -1, .sampler = greedy});
  EXPECT_EQ(generated.result.reason, FinishReason::kContextFull);
  // The last token is sampled but needs no place.
  EXPECT_EQ(generated.result.generated_tokens, 20 - prompt_tokens + 1);
  EXPECT_EQ(generated.text,
            tokenizer_.decode(sample(*open(256), greedy,
                                     static_cast<size_t>(generated.result.generated_tokens))));
}

TEST_F(GenerateTest, SinkCanEndTheText) {
  const auto engine = open(256);
  int calls = 0;
  const Generated generated =
      run(*engine, {.tokens_max = 50}, [&](std::string_view) { return ++calls < 5; });
  EXPECT_EQ(generated.result.reason, FinishReason::kCancelled);
  EXPECT_EQ(generated.result.generated_tokens, 5);
}

TEST_F(GenerateTest, StopRequestEndsTheTextAtTheNextToken) {
  const auto engine = open(256);
  std::stop_source stop;
  int calls = 0;
  const Generated generated =
      run(*engine, {.tokens_max = 50, .stop = stop.get_token()}, [&](std::string_view) {
        if (++calls == 3) stop.request_stop();
        return true;
      });
  EXPECT_EQ(generated.result.reason, FinishReason::kCancelled);
  EXPECT_EQ(generated.result.generated_tokens, 3);
  const Generated stopped_before = run(*engine, {.tokens_max = 50, .stop = stop.get_token()});
  EXPECT_EQ(stopped_before.result.reason, FinishReason::kCancelled);
  EXPECT_EQ(stopped_before.text, "");
}

TEST_F(GenerateTest, PromptThatCannotBeEvaluatedIsAnError) {
  const auto engine = open(8);
  const auto outcome = [&](const Tokens& prompt, const GenerateOptions& options) {
    auto sequence = engine->create_sequence();
    EXPECT_TRUE(sequence.ok());
    GenerateResult result;
    return generate(
        *engine, tokenizer_, **sequence, prompt, options, [](std::string_view) { return true; },
        result);
  };
  expect_error(outcome(Tokens(9, 1), {}), ErrorCode::kResourceExhausted, {"9 tokens", "of 8"});
  expect_error(outcome({}, {}), ErrorCode::kInvalidArgument, {"no tokens"});
  expect_error(outcome({1}, {.sampler = {.top_p = -1.0f}}), ErrorCode::kInvalidArgument, {"top_p"});
}

TEST_F(GenerateTest, ErrorInMidTextKeepsWhatWasDone) {
  const testing::TempFolder folder;
  std::filesystem::copy(fable(), folder / "model");
  auto engine = Engine::open(folder / "model", *device_, {.expert_cache_bytes = 0});
  ASSERT_TRUE(engine.ok());
  auto sequence = (*engine)->create_sequence();
  ASSERT_TRUE(sequence.ok());
  int pieces = 0;
  GenerateResult result;
  const Status done = generate(
      **engine, tokenizer_, **sequence, prompt_, {.tokens_max = 50},
      [&](std::string_view) {
        if (++pieces == 5)
          std::filesystem::resize_file(folder / "model/model.safetensors", 1 << 20);
        return true;
      },
      result);
  expect_error(done, ErrorCode::kIo, {"model.safetensors"});
  EXPECT_EQ(result.prompt_tokens, static_cast<int64_t>(prompt_.size()));
  EXPECT_EQ(result.generated_tokens, 5);
  EXPECT_EQ(result.decode_steps, 4);
  EXPECT_GT(result.decode_experts.misses, 0u);
}

TEST_F(GenerateTest, ProgressCountsThePromptsTokens) {
  auto engine = Engine::open(fable(), *device_, {.context_length = 64, .prefill_chunk = 2});
  ASSERT_TRUE(engine.ok());
  std::vector<int64_t> counts;
  run(**engine, {.tokens_max = 3, .prefill_progress = [&](int64_t n) { counts.push_back(n); }});
  std::vector<int64_t> expected;
  const auto n = static_cast<int64_t>(prompt_.size());
  for (int64_t i = 2; i < n; i += 2) expected.push_back(i);
  expected.push_back(n);
  EXPECT_EQ(counts, expected);
}

TEST_F(GenerateTest, CountsReadsOfPromptAndTextApart) {
  const auto engine = open(256);
  const GenerateResult result = run(*engine, {.tokens_max = 30}).result;
  EXPECT_GT(result.prefill_experts.misses, 0u);
  EXPECT_GT(result.decode_experts.hits + result.decode_experts.misses, 0u);
  const ExpertStats all = engine->expert_stats();
  EXPECT_EQ(result.prefill_experts.misses + result.decode_experts.misses, all.misses);
  EXPECT_EQ(result.prefill_experts.hits + result.decode_experts.hits, all.hits);
}

}  // namespace
}  // namespace moeflux
