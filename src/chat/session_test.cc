#include "chat/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "backend/gpu/emulator/emulator.h"
#include "backend/gpu/gpu_device.h"
#include "base/json.h"
#include "tests/support/eval_last.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/watched_platform.h"

namespace moeflux {
namespace {

using testing::expect_error;

struct Generated {
  std::string text;
  std::vector<std::string> pieces;
  GenerateResult result;
};

class SessionTest : public ::testing::Test {
 protected:
  using Tokens = std::vector<TokenId>;

  static std::string fable() { return std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m"; }
  static std::shared_ptr<OpenModel> open(const std::string& folder,
                                         const OpenModelOptions& options) {
    auto text = load_model_text(folder);
    EXPECT_TRUE(text.ok()) << text.error().to_string();
    auto model = open_model(folder, options, std::move(text).value());
    EXPECT_TRUE(model.ok()) << model.error().to_string();
    return std::move(model).value();
  }
  static std::shared_ptr<OpenModel> open(int64_t context) {
    return open(fable(), {.device = {.threads = 1, .precision = "f32"},
                          .engine = {.context_length = context, .expert_cache_bytes = 1 << 20}});
  }
  static std::shared_ptr<Session> start(const std::shared_ptr<OpenModel>& model,
                                        const SamplerOptions& sampler = {}) {
    auto session = Session::create(model);
    EXPECT_TRUE(session.ok());
    EXPECT_TRUE((*session)->set_sampler(sampler).ok());
    return std::move(session).value();
  }
  static Generated generate(Session& session, const Tokens& prompt, const GenerateOptions& options,
                            const TextSink& also = {}) {
    Generated generated;
    const Status done = session.generate(
        prompt, options,
        [&](std::string_view text) {
          generated.pieces.emplace_back(text);
          generated.text += text;
          return !also || also(text);
        },
        generated.result);
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().to_string());
    return generated;
  }
  Generated run(const std::shared_ptr<OpenModel>& model, const SamplerOptions& sampler,
                const GenerateOptions& options, const TextSink& also = {}) {
    return generate(*start(model, sampler), prompt_, options, also);
  }

  /// The tokens that generate() should sample, one engine call at a time.
  Tokens sample(Engine& engine, const SamplerOptions& options, size_t n,
                const std::shared_ptr<ConstrainedText>& held = nullptr) {
    auto sampler = Sampler::create(options);
    auto sequence = engine.create_sequence();
    EXPECT_TRUE(sampler.ok() && sequence.ok());
    for (const TokenId token : prompt_) sampler->accept(token);
    Tokens next = prompt_;
    Tokens tokens;
    while (tokens.size() < n) {
      const auto logits = eval_last(engine, **sequence, next);
      EXPECT_TRUE(logits.ok());
      const TokenMask mask = held ? held->allowed({})->mask : TokenMask();
      const auto token = sampler->sample(*logits, held ? &mask : nullptr);
      EXPECT_TRUE(token.ok());
      if (held) {
        EXPECT_TRUE(held->push(*token).ok());
      }
      sampler->accept(*token);
      tokens.push_back(*token);
      next = {*token};
    }
    return tokens;
  }
  std::string decode(const Tokens& tokens) const { return tokenizer_.decode(tokens); }

  Tokenizer tokenizer_ = std::move(load_tokenizer(fable())).value();
  Tokens prompt_ = *tokenizer_.encode("Once upon a time");
};

TEST_F(SessionTest, SameSeedGivesTheSameText) {
  const auto model = open(256);
  const auto text = [&](uint64_t seed) {
    return run(model, {.seed = seed}, {.tokens_max = 40}).text;
  };
  const std::string first = text(7);
  EXPECT_GT(first.size(), 40u);
  EXPECT_EQ(text(7), first);
  EXPECT_NE(text(8), first);
}

TEST_F(SessionTest, ADeviceThatReadsTheBestLogitsBackGivesTheSameText) {
  const auto model = std::make_shared<OpenModel>();
  model->text = std::move(load_model_text(fable())).value();
  model->device = make_gpu_device(gpu::make_emulator_platform({.memory_bytes = uint64_t{1} << 40}));
  model->engine = std::move(Engine::open(fable(), *model->device, {.context_length = 16})).value();
  ASSERT_TRUE(model->engine->state_memory().is_bounded());
  const SamplerOptions options{.top_k = 5, .seed = 3};
  const Tokens expected = sample(*model->engine, options, 3);
  EXPECT_EQ(run(model, options, {.tokens_max = 3, .keep_last_token = false}).text,
            decode(expected));
  // Text that goes on ends with all logits of its last token.
  const auto session = start(model, options);
  generate(*session, prompt_, {.tokens_max = 2});
  const auto went_on = session->logits();
  ASSERT_TRUE(went_on.ok());
  const std::vector<float> logits(went_on->begin(), went_on->end());
  ASSERT_TRUE(session->truncate(session->position() - 1).ok());
  ASSERT_TRUE(session->eval(std::span(expected).subspan(1, 1)).ok());
  EXPECT_TRUE(std::ranges::equal(logits, *session->logits()));
  // Greedy text that is held to something needs all logits only where the best token may not come.
  if (!has_constraints()) return;
  const auto held = start(model, {.temperature = 0});
  ASSERT_TRUE(held->set_constraint({.kind = ConstraintKind::kRegex, .text = "[a-z ]+"}).ok());
  const std::string drawn = generate(*held, prompt_, {.tokens_max = 6}).text;
  EXPECT_FALSE(drawn.empty());
  EXPECT_EQ(drawn.find_first_not_of("abcdefghijklmnopqrstuvwxyz "), std::string::npos) << drawn;
}

TEST_F(SessionTest, ADeviceReadsNoRowsOfTextsWithMasksPenaltiesAndBias) {
  if (!has_constraints()) return;
  const auto model = std::make_shared<OpenModel>();
  testing::LaunchCounts counts;
  model->text = std::move(load_model_text(fable())).value();
  model->device = make_gpu_device(testing::make_watched_platform(
      gpu::make_emulator_platform({.memory_bytes = uint64_t{1} << 40}), counts));
  model->engine = std::move(Engine::open(fable(), *model->device, {.context_length = 32})).value();
  const OutputConstraint schema{
      .kind = ConstraintKind::kJsonSchema,
      .text = R"({"type": "object", "properties": {"n": {"type": "integer"}}})"};
  const SamplerOptions penalties{.top_k = 5,
                                 .repeat_penalty = 1.3f,
                                 .presence_penalty = -0.5f,
                                 .logit_bias = {{tokenizer_.encode("king")->front(), 3.0f}},
                                 .seed = 3};
  const auto compiled = model->compile(schema);
  ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
  constexpr size_t kTokens = 4;
  const Tokens held = sample(*model->engine, penalties, kTokens, ConstrainedText::make(*compiled));
  const Tokens free = sample(*model->engine, penalties, kTokens);
  for (const bool is_held : {true, false}) {
    const auto session = start(model, penalties);
    ASSERT_TRUE(session->eval(prompt_).ok());  // whose last row is read
    if (is_held) {
      ASSERT_TRUE(session->set_constraint(schema).ok());
    }
    counts.bytes_read = 0;
    EXPECT_EQ(generate(*session, {}, {.tokens_max = kTokens, .keep_last_token = false}).text,
              decode(is_held ? held : free));
    const auto row = static_cast<size_t>(model->engine->spec().vocab_size) * sizeof(float);
    EXPECT_LT(counts.bytes_read, row) << is_held;
  }
}

/// Every sampler with a state of its own, beside what is read off the text.
std::vector<SamplerOptions> stateful_samplers() {
  return {{.seed = 4, .mirostat = 1, .mirostat_tau = 3.0f, .mirostat_eta = 0.5f},
          {.seed = 4, .mirostat = 2, .mirostat_tau = 3.0f, .mirostat_eta = 0.5f},
          {.seed = 4, .xtc_probability = 0.5f, .dry_multiplier = 0.8f, .dry_penalty_last_n = -1}};
}

TEST_F(SessionTest, CheckpointsForksAndSnapshotsCarryTheSamplersState) {
  const auto model = open(256);
  for (const SamplerOptions& options : stateful_samplers()) {
    const auto session = start(model, options);
    generate(*session, prompt_, {.tokens_max = 12});
    const auto checkpoint = session->checkpoint();
    const auto snapshot = session->save();
    const auto forked = session->fork();
    ASSERT_TRUE(checkpoint.ok() && snapshot.ok() && forked.ok());
    const std::string rest = generate(*session, {}, {.tokens_max = 20}).text;
    EXPECT_EQ(generate(**forked, {}, {.tokens_max = 20}).text, rest);
    ASSERT_TRUE(session->restore(*checkpoint).ok());
    EXPECT_EQ(generate(*session, {}, {.tokens_max = 20}).text, rest);
    const auto loaded = start(model);
    ASSERT_TRUE(loaded->load(*snapshot).ok());
    EXPECT_EQ(generate(*loaded, {}, {.tokens_max = 20}).text, rest);
    // In pieces and in one call the text is one.
    EXPECT_EQ(run(model, options, {.tokens_max = 32}).text,
              run(model, options, {.tokens_max = 12}).text + rest);
  }
}

TEST_F(SessionTest, DryEndsWhatWouldRepeat) {
  const auto model = open(256);
  const auto longest_repeat = [&](const SamplerOptions& options) {
    const auto session = start(model, options);
    generate(*session, prompt_,
             {.tokens_max = 200, .ignore_model_stop_tokens = true, .keep_last_token = true});
    const auto tokens = session->tokens();
    size_t longest = 0;
    for (size_t a = 0; a < tokens.size(); ++a) {
      for (size_t b = a + 1; b < tokens.size(); ++b) {
        size_t n = 0;
        while (b + n < tokens.size() && tokens[a + n] == tokens[b + n]) ++n;
        longest = std::max(longest, n);
      }
    }
    return longest;
  };
  const size_t free = longest_repeat({.temperature = 0});
  // Repetitions of three tokens cost more than any logit has; breakers would let longer ones pass.
  const size_t bound = longest_repeat({.temperature = 0,
                                       .dry_multiplier = 1e6f,
                                       .dry_penalty_last_n = -1,
                                       .dry_sequence_breakers = {}});
  EXPECT_GT(free, 3u);
  EXPECT_LE(bound, 2u);
}

TEST_F(SessionTest, PiecesTogetherAreTheDecodedTokens) {
  const auto model = open(256);
  for (const SamplerOptions& sampler :
       {SamplerOptions{.temperature = 0}, SamplerOptions{.repeat_penalty = 1.3f, .seed = 3}}) {
    const Generated generated = run(model, sampler, {.tokens_max = 60});
    EXPECT_EQ(generated.text, decode(sample(*model->engine, sampler, 60)));
    EXPECT_EQ(generated.result.reason, FinishReason::kTokensMax);
  }
}

TEST_F(SessionTest, HalvesOfCharactersAreHeldBackUntilTheEnd) {
  const auto model = open(64);
  const std::optional<TokenId> half = tokenizer_.find("\xE2");
  ASSERT_TRUE(half.has_value());
  const SamplerOptions always_half{.temperature = 0, .logit_bias = {{*half, 1e6f}}};
  const Generated generated = run(model, always_half, {.tokens_max = 3});
  EXPECT_EQ(generated.text, decode({*half, *half, *half}));
  EXPECT_EQ(generated.pieces.front(), "");
  EXPECT_EQ(generated.pieces.back(), "\xEF\xBF\xBD");
}

TEST_F(SessionTest, CountsTokensAndSteps) {
  const auto model = open(256);
  for (const int64_t n : {0, 1, 17}) {
    const Generated generated = run(model, {}, {.tokens_max = n});
    EXPECT_EQ(generated.result.reason, FinishReason::kTokensMax);
    EXPECT_EQ(generated.result.generated_tokens, n);
    EXPECT_EQ(generated.result.decode_steps, n);
    // The first token comes from the prompt's logits.
    const Generated ended = run(model, {}, {.tokens_max = n, .keep_last_token = false});
    EXPECT_EQ(ended.result.decode_steps, std::max<int64_t>(n - 1, 0));
    EXPECT_EQ(ended.text, generated.text);
    EXPECT_EQ(generated.result.prompt_tokens, static_cast<int64_t>(prompt_.size()));
    EXPECT_EQ(generated.text.empty(), n == 0);
  }
}

TEST_F(SessionTest, StopTokenEndsTheTextAndIsNotPartOfIt) {
  const auto model = open(256);
  const SamplerOptions greedy{.temperature = 0};
  const Tokens tokens = sample(*model->engine, greedy, 20);
  const TokenId stop = tokens[9];
  const auto first = std::find(tokens.begin(), tokens.end(), stop);
  const Generated generated = run(model, greedy, {.tokens_max = 20, .stop_tokens = {-5, stop}});
  EXPECT_EQ(generated.result.reason, FinishReason::kStopToken);
  EXPECT_EQ(generated.result.generated_tokens, first - tokens.begin());
  EXPECT_EQ(generated.text, decode(Tokens(tokens.begin(), first)));
}

TEST_F(SessionTest, StopStringEndsTheTextBeforeIt) {
  const auto model = open(256);
  const SamplerOptions greedy{.temperature = 0};
  const std::string whole = run(model, greedy, {.tokens_max = 30}).text;
  const std::string stop = whole.substr(whole.size() / 2, 5);
  const Generated generated =
      run(model, greedy, {.tokens_max = 30, .stop_strings = {"absent", stop}});
  EXPECT_EQ(generated.result.reason, FinishReason::kStopString);
  EXPECT_EQ(generated.text, whole.substr(0, whole.find(stop)));
}

TEST_F(SessionTest, FullContextEndsTheText) {
  const auto model = open(20);
  const auto prompt_tokens = static_cast<int64_t>(prompt_.size());
  const SamplerOptions greedy{.temperature = 0};
  const Generated generated = run(model, greedy, {.tokens_max = -1});
  EXPECT_EQ(generated.result.reason, FinishReason::kContextFull);
  // The last token is sampled but needs no place.
  EXPECT_EQ(generated.result.generated_tokens, 20 - prompt_tokens + 1);
  EXPECT_EQ(generated.text, decode(sample(*open(256)->engine, greedy,
                                          static_cast<size_t>(generated.result.generated_tokens))));
}

TEST_F(SessionTest, SinkCanEndTheText) {
  const auto model = open(256);
  int calls = 0;
  const Generated generated =
      run(model, {}, {.tokens_max = 50}, [&](std::string_view) { return ++calls < 5; });
  EXPECT_EQ(generated.result.reason, FinishReason::kCancelled);
  EXPECT_EQ(generated.result.generated_tokens, 5);
}

TEST_F(SessionTest, StopRequestEndsTheTextAtTheNextToken) {
  const auto model = open(256);
  std::stop_source stop;
  int calls = 0;
  const Generated generated =
      run(model, {}, {.tokens_max = 50, .stop = stop.get_token()}, [&](std::string_view) {
        if (++calls == 3) stop.request_stop();
        return true;
      });
  EXPECT_EQ(generated.result.reason, FinishReason::kCancelled);
  EXPECT_EQ(generated.result.generated_tokens, 3);
  const Generated stopped_before = run(model, {}, {.tokens_max = 50, .stop = stop.get_token()});
  EXPECT_EQ(stopped_before.result.reason, FinishReason::kCancelled);
  EXPECT_EQ(stopped_before.text, "");
}

TEST_F(SessionTest, PromptThatCannotBeEvaluatedIsAnError) {
  const auto model = open(8);
  const auto session = start(model);
  const auto outcome = [&](const Tokens& prompt) {
    GenerateResult result;
    return session->generate(
        prompt, {}, [](std::string_view) { return true; }, result);
  };
  expect_error(outcome(Tokens(9, 1)), ErrorCode::kResourceExhausted, {"9 tokens", "of 8"});
  expect_error(outcome({}), ErrorCode::kFailedPrecondition, {"empty"});
  expect_error(session->set_sampler({.top_p = -1.0f}), ErrorCode::kInvalidArgument, {"top_p"});
  expect_error(session->set_sampler({.logit_bias = {{1 << 20, 1.0f}}}), ErrorCode::kInvalidArgument,
               {"1048576", "vocabulary"});
}

TEST_F(SessionTest, AModelOpenedWithoutItsTextGeneratesNone) {
  const auto model = open_model(fable(), {.engine = {.context_length = 8}});
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  GenerateResult result;
  expect_error(start(*model)->generate(
                   prompt_, {}, [](std::string_view) { return true; }, result),
               ErrorCode::kFailedPrecondition, {"without its tokenizer"});
}

TEST_F(SessionTest, ErrorInMidTextKeepsWhatWasDone) {
  const testing::TempFolder folder;
  std::filesystem::copy(fable(), folder / "model");
  const auto session = start(open(folder / "model", {.engine = {.expert_cache_bytes = 0}}));
  int pieces = 0;
  GenerateResult result;
  const Status done = session->generate(
      prompt_, {.tokens_max = 50},
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

TEST_F(SessionTest, ProgressCountsThePromptsTokensAndCanStop) {
  const auto model = open(fable(), {.engine = {.context_length = 64, .prefill_chunk = 2}});
  std::vector<int64_t> counts;
  const auto count = [&](int64_t n) {
    counts.push_back(n);
    return true;
  };
  run(model, {}, {.tokens_max = 3, .prefill_progress = count});
  std::vector<int64_t> expected;
  const auto n = static_cast<int64_t>(prompt_.size());
  for (int64_t i = 2; i < n; i += 2) expected.push_back(i);
  expected.push_back(n);
  EXPECT_EQ(counts, expected);
  for (const int64_t stop_at : expected) {
    const Generated stopped =
        run(model, {}, {.prefill_progress = [&](int64_t done) { return done < stop_at; }});
    EXPECT_EQ(stopped.result.reason, FinishReason::kCancelled);
    EXPECT_EQ(stopped.result.prompt_tokens, stop_at);
    EXPECT_EQ(stopped.text, "");
  }
}

TEST_F(SessionTest, CountsReadsOfPromptAndTextApart) {
  const auto model = open(256);
  const GenerateResult result = run(model, {}, {.tokens_max = 30}).result;
  EXPECT_GT(result.prefill_experts.misses, 0u);
  EXPECT_GT(result.decode_experts.hits + result.decode_experts.misses, 0u);
  const ExpertStats all = model->engine->expert_stats();
  EXPECT_EQ(result.prefill_experts.misses + result.decode_experts.misses, all.misses);
  EXPECT_EQ(result.prefill_experts.hits + result.decode_experts.hits, all.hits);
  const ModelCounters counters = model->counters();
  EXPECT_EQ(counters.experts.misses, all.misses);
  EXPECT_EQ(counters.evaluated_tokens, prompt_.size() + 30);
}

OutputConstraint fruit_schema() {
  return {.kind = ConstraintKind::kJsonSchema,
          .text = R"({"type": "object", "properties": {"fruit": {"enum": ["pear", "plum"]},
                      "count": {"type": "integer", "minimum": 0, "maximum": 500}},
                      "required": ["fruit", "count"], "additionalProperties": false})",
          .source = "schema"};
}

bool is_fruit(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  return json.is_object() && json.size() == 2 &&
         (json["fruit"] == "pear" || json["fruit"] == "plum") && json["count"].is_number() &&
         json["count"] >= 0 && json["count"] <= 500;
}

TEST_F(SessionTest, AHeldTextIsADocumentWhateverIsDrawn) {
  if (!has_constraints()) return;
  const auto model = open(256);
  const std::vector<SamplerOptions> samplers = {
      {.temperature = 0},
      {.temperature = 1.5f, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 1},
      {.temperature = 1, .seed = 2, .mirostat = 2},
      {.temperature = 1, .repeat_penalty = 1.5f, .seed = 3, .dry_multiplier = 0.8f}};
  for (const SamplerOptions& options : samplers) {
    const auto session = start(model, options);
    ASSERT_TRUE(session->set_constraint(fruit_schema()).ok());
    const Generated held = generate(*session, prompt_, {.tokens_max = 200});
    EXPECT_TRUE(is_fruit(held.text)) << held.text;
    EXPECT_EQ(held.result.reason, FinishReason::kStopToken);
    // Without a token to stop it, it ends with its last one.
    const auto other = start(model, options);
    ASSERT_TRUE(other->set_constraint(fruit_schema()).ok());
    const Generated again =
        generate(*other, prompt_, {.tokens_max = 200, .ignore_model_stop_tokens = true});
    EXPECT_TRUE(is_fruit(again.text)) << again.text;
    EXPECT_EQ(again.result.reason, FinishReason::kStopToken);
  }
}

TEST_F(SessionTest, AHeldTextGoesOnAfterPausesSnapshotsAndForks) {
  if (!has_constraints()) return;
  const auto model = open(256);
  const SamplerOptions options{.temperature = 1.2f, .top_k = 0, .seed = 5};
  const auto whole = start(model, options);
  ASSERT_TRUE(whole->set_constraint(fruit_schema()).ok());
  const std::string expected = generate(*whole, prompt_, {.tokens_max = 200}).text;
  ASSERT_TRUE(is_fruit(expected)) << expected;
  const auto session = start(model, options);
  ASSERT_TRUE(session->set_constraint(fruit_schema()).ok());
  const std::string begun = generate(*session, prompt_, {.tokens_max = 6}).text;
  const auto forked = session->fork();
  const auto snapshot = session->save();
  const auto checkpoint = session->checkpoint();
  ASSERT_TRUE(forked.ok() && snapshot.ok() && checkpoint.ok());
  EXPECT_EQ(begun + generate(*session, {}, {.tokens_max = 200}).text, expected);
  EXPECT_EQ(begun + generate(**forked, {}, {.tokens_max = 200}).text, expected);
  ASSERT_TRUE(session->restore(*checkpoint).ok());
  EXPECT_EQ(begun + generate(*session, {}, {.tokens_max = 200}).text, expected);
  const auto loaded = start(model);
  ASSERT_TRUE(loaded->load(*snapshot).ok());
  EXPECT_EQ(begun + generate(*loaded, {}, {.tokens_max = 200}).text, expected);
  // Token by token, with the sampler alone.
  const auto single = start(model, options);
  ASSERT_TRUE(single->eval(prompt_).ok());
  ASSERT_TRUE(single->set_constraint(fruit_schema()).ok());
  Tokens drawn;
  for (TokenId token = *single->sample(); token != 0 && token != 2; token = *single->sample()) {
    drawn.push_back(token);
    ASSERT_LT(drawn.size(), 200u);
    ASSERT_TRUE(single->eval({&token, 1}, {.phase = StepPhase::kDecode}).ok());
  }
  EXPECT_EQ(decode(drawn), expected);
}

TEST_F(SessionTest, AConstraintCanBeTakenAwayAndBroken) {
  if (!has_constraints()) return;
  const auto model = open(256);
  const auto session = start(model, {.temperature = 0});
  const std::string free =
      generate(*start(model, {.temperature = 0}), prompt_, {.tokens_max = 9}).text;
  ASSERT_TRUE(session->set_constraint(fruit_schema()).ok());
  ASSERT_TRUE(session->set_constraint({}).ok());
  EXPECT_EQ(generate(*session, prompt_, {.tokens_max = 9}).text, free);
  ASSERT_TRUE(session->set_constraint(fruit_schema()).ok());
  ASSERT_TRUE(session->eval(prompt_).ok());  // what stands behind the begin counts
  expect_error(session->sample(), ErrorCode::kInvalidArgument, {"schema", "cannot follow"});
  expect_error(
      session->set_constraint({.kind = ConstraintKind::kRegex, .text = "(", .source = "r"}),
      ErrorCode::kInvalidArgument, {"r: "});
}

}  // namespace
}  // namespace moeflux
