// Requests for text: that they disturb nobody, end when they should, and fail alone.
#include "schedule/scheduler.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include "chat/drafts/draft_test_util.h"
#include "schedule/scheduler_test_util.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using std::chrono::milliseconds;
using testing::expect_error;

constexpr SchedulerOptions kSmallSlices = {
    .active_max = 3, .sharing = Sharing::kSlices, .slice_time = milliseconds(0)};

/// Parks its text at the fourth token, and says so.
std::shared_ptr<Collector> collector_that_parks(std::promise<void>& parked) {
  return std::make_shared<Collector>([&](const DrawnToken&, size_t before) {
    if (before == 3) parked.set_value();
    return Verdict{.park = before == 3};
  });
}

TEST_F(SchedulerTest, ATextIsThatOfASession) {
  const std::string fable = std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m";
  auto text = std::move(load_model_text(fable)).value();
  const std::vector<TokenId> prompt = *text.tokenizer->encode("Once upon a time");
  const auto model = open_text(fable, {.context_length = 128}, std::move(text));
  const SamplerOptions sampler{.repeat_penalty = 1.2f, .seed = 5};
  const auto session = std::move(Session::create(model)).value();
  ASSERT_TRUE(session->set_sampler(sampler).ok());
  std::string expected;
  GenerateResult result;
  const auto write = [&](std::string_view piece) {
    expected += piece;
    return true;
  };
  ASSERT_TRUE(session->generate(prompt, {.tokens_max = 30}, write, result).ok());

  const auto scheduler = begin(model);
  const TextRequest request{.prompt = prompt, .sampler = sampler, .tokens_max = 30};
  const auto found = run(*scheduler, request);
  EXPECT_EQ(found->text, expected);
  EXPECT_EQ(found->statistics.reason, FinishReason::kTokensMax);
  EXPECT_EQ(found->statistics.generated_tokens, 30);
  EXPECT_EQ(found->statistics.prompt_tokens, static_cast<int64_t>(prompt.size()));
  EXPECT_GT(found->statistics.experts.hits + found->statistics.experts.misses, 0u);
  // Halves of characters are told at the end, and a stop token with its id.
  const TokenId half = *model->text.tokenizer->find("\xE2");
  TextRequest halves{.prompt = prompt, .sampler = {.temperature = 0}, .tokens_max = 1};
  halves.sampler.logit_bias = {{half, 1e6f}};
  EXPECT_EQ(run(*scheduler, halves)->text, "\xEF\xBF\xBD");
  TextRequest stopped = request;
  stopped.stop_tokens = {found->tokens[7]};
  const auto short_one = run(*scheduler, stopped);
  EXPECT_EQ(short_one->stop_tokens, stopped.stop_tokens);
  EXPECT_EQ(short_one->statistics.reason, FinishReason::kStopToken);
}

TEST_F(SchedulerTest, LogprobsAreThoseOfTheLogits) {
  const auto model = open_tiny();
  const Tokens prompt = some_tokens(40);
  const auto scheduler = begin(model);
  run(*scheduler, {.prompt = prompt, .tokens_max = 4});  // which nobody may begin from
  const auto found = run(*scheduler, {.prompt = prompt,
                                      .sampler = {.seed = 3},
                                      .tokens_max = 5,
                                      .top_logprobs = 0,
                                      .prompt_logprobs = true});
  const std::vector<float> logits = all_logits(*model->engine, joined(prompt, found->tokens));
  const Tokens tokens = joined(prompt, found->tokens);
  const auto expected = [&](size_t at) {
    return token_logprobs(std::span(logits).subspan((at - 1) * kVocab, kVocab), tokens[at], 0)
        .logprob;
  };
  EXPECT_EQ(found->statistics.cached_tokens, 0);
  ASSERT_EQ(found->prompt_logprobs.size(), prompt.size() - 1);
  EXPECT_EQ(found->prompt_logprobs_calls, 1);
  for (size_t i = 1; i < prompt.size(); ++i) EXPECT_EQ(found->prompt_logprobs[i - 1], expected(i));
  ASSERT_EQ(found->logprobs.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(found->logprobs[i], expected(prompt.size() + i));
}

TEST_F(SchedulerTest, ThePromptAloneIsEvaluatedForNoTokens) {
  const auto scheduler = begin(open_tiny());
  const auto found = run(*scheduler, {.prompt = some_tokens(40), .tokens_max = 0});
  EXPECT_EQ(found->statistics.reason, FinishReason::kTokensMax);
  EXPECT_TRUE(found->tokens.empty());
  ASSERT_GE(found->progress.size(), 3u);  // pieces of 16
  EXPECT_EQ(found->progress.back().processed, 40);
  EXPECT_EQ(found->progress.back().total, 40);
  EXPECT_TRUE(std::ranges::is_sorted(found->progress, {}, &PromptProgress::processed));
  EXPECT_EQ(scheduler->counters().prompt_tokens, 40u);
  EXPECT_EQ(scheduler->counters().finished, 1u);
  EXPECT_EQ(scheduler->counters().steps_by_texts[0], scheduler->counters().steps);
  EXPECT_EQ(scheduler->counters().decode_bytes, 0u);  // prompts do not count
}

TEST_F(SchedulerTest, ForcedTokensComeBeforeDrawnOnes) {
  const TextRequest request{
      .prompt = some_tokens(5), .sampler = {.temperature = 0}, .tokens_max = 8};
  const auto scheduler = begin(open_tiny());
  const auto forcing = [](const DrawnToken&, size_t before) {
    return before == 1 ? Verdict{.forced = {7, 8, 9}} : Verdict{};
  };
  const auto found = run(*scheduler, request, forcing);
  ASSERT_EQ(found->tokens.size(), 8u);
  EXPECT_EQ(Tokens(found->tokens.begin() + 2, found->tokens.begin() + 5), (Tokens{7, 8, 9}));
  TextRequest after = request;
  after.prompt = joined(request.prompt, Tokens(found->tokens.begin(), found->tokens.begin() + 5));
  after.tokens_max = 3;
  EXPECT_EQ(alone(after), Tokens(found->tokens.begin() + 5, found->tokens.end()));
  const auto stopped = run(*scheduler, request, [](const DrawnToken&, size_t before) {
    return Verdict{.stop = before == 2};
  });
  EXPECT_EQ(stopped->statistics.reason, FinishReason::kStopString);
  EXPECT_EQ(stopped->tokens.size(), 3u);
}

TEST_F(SchedulerTest, WhatCannotBeIsRefusedByName) {
  const auto scheduler = begin(open_tiny({.context_length = 64}));
  const auto refuse = [&](const TextRequest& request,
                          std::initializer_list<std::string_view> pieces) {
    expect_error(scheduler->submit(request, std::make_shared<Collector>()),
                 ErrorCode::kInvalidArgument, pieces);
  };
  refuse({}, {"empty"});
  refuse({.prompt = {1, 64}}, {"token 64", "position 1", "vocabulary of 64"});
  refuse({.prompt = some_tokens(60), .tokens_max = 5},
         {"60 tokens", "5 to follow", "context of 64"});
  refuse({.prompt = some_tokens(65)}, {"65 tokens", "context of 64"});
  refuse({.prompt = {1}, .sampler = {.top_p = -1}}, {"top_p"});
  refuse({.prompt = {1}, .sampler = {.logit_bias = {{64, 1.0f}}}}, {"logit_bias", "64"});
  refuse({.prompt = {1}, .top_logprobs = 21}, {"21", "20"});
  expect_error(Scheduler::start(open_tiny(), {.active_max = 0}), ErrorCode::kInvalidArgument,
               {"expected 1"});
  EXPECT_EQ(run(*scheduler, {.prompt = some_tokens(60)})->statistics.reason,
            FinishReason::kContextFull);
}

TEST_F(SchedulerTest, WhoWaitsIsToldWhereAndCanBeCancelledAtOnce) {
  const auto scheduler = begin(open_tiny(), {.queue_max = 2, .active_max = 1});
  Gate gate;
  const auto first = std::make_shared<Collector>([&](const DrawnToken&, size_t before) {
    if (before == 2) gate.pass();
    return Verdict{};
  });
  const TextRequest request{.prompt = some_tokens(5), .tokens_max = 6};
  const TextRequestId running = submit(*scheduler, request, first);
  gate.wait_for_arrival();
  const auto second = std::make_shared<Collector>();
  const auto third = std::make_shared<Collector>();
  const TextRequestId waiting = submit(*scheduler, request, second);
  submit(*scheduler, request, third);
  expect_error(scheduler->submit(request, std::make_shared<Collector>()),
               ErrorCode::kResourceExhausted, {"1 requests run and 2 wait"});
  scheduler->cancel(waiting);
  EXPECT_EQ(scheduler->counters().waiting, 1);
  ASSERT_EQ(scheduler->slots().size(), 1u);
  EXPECT_EQ(scheduler->slots()[0].id, running);
  EXPECT_EQ(scheduler->slots()[0].prompt_tokens, 5);
  scheduler->cancel(running);
  scheduler->cancel(12345);
  gate.open();
  for (const auto& receiver : {first, second, third}) receiver->wait();
  EXPECT_EQ(first->statistics.reason, FinishReason::kCancelled);
  EXPECT_EQ(first->tokens.size(), 3u);
  EXPECT_EQ(second->statistics.reason, FinishReason::kCancelled);
  EXPECT_TRUE(second->tokens.empty());
  EXPECT_EQ(third->statistics.reason, FinishReason::kTokensMax);
  EXPECT_EQ(third->progress.front().queue_position, 1);  // nobody else waits any more
  EXPECT_EQ(third->progress.back().queue_position, 0);
  EXPECT_EQ(scheduler->counters().cancelled, 2u);
}

TEST_F(SchedulerTest, APromptIsCancelledBetweenItsPieces) {
  const auto scheduler = begin(open_tiny());
  class Canceller final : public TextReceiver {
   public:
    void on_progress(const PromptProgress& told) override {
      processed = told.processed;
      if (processed == 32) cancel();
    }
    Verdict on_token(const DrawnToken&) override { return {}; }
    void on_done(const TextStatistics& told) override { done.set_value(told.reason); }
    void on_failed(const Error&) override {}
    std::function<void()> cancel;
    int64_t processed = 0;
    std::promise<FinishReason> done;
  };
  const auto receiver = std::make_shared<Canceller>();
  receiver->cancel = [&] { scheduler->cancel(1); };
  ASSERT_TRUE(scheduler->submit({.prompt = some_tokens(100)}, receiver).ok());
  EXPECT_EQ(receiver->done.get_future().get(), FinishReason::kCancelled);
  EXPECT_EQ(receiver->processed, 32);
  // The evaluated state is of use.
  EXPECT_GT(
      run(*scheduler, {.prompt = some_tokens(100), .tokens_max = 1})->statistics.cached_tokens, 0);
}

TEST_F(SchedulerTest, AParkedTextWaitsAndOthersGoOn) {
  const auto scheduler = begin(open_tiny(), kSmallSlices);
  const TextRequest request{.prompt = some_tokens(5), .sampler = {.seed = 1}, .tokens_max = 9};
  std::promise<void> parked;
  const auto first = collector_that_parks(parked);
  const TextRequestId id = submit(*scheduler, request, first);
  parked.get_future().wait();
  EXPECT_EQ(run(*scheduler, request)->tokens.size(), 9u);
  EXPECT_EQ(first->tokens.size(), 4u);
  EXPECT_EQ(scheduler->counters().parked, 1);
  scheduler->resume(id);
  first->wait();
  EXPECT_EQ(first->tokens, alone(request));
  // A resume that comes before the verdict is not lost.
  const auto second = std::make_shared<Collector>([&](const DrawnToken&, size_t) {
    scheduler->resume(id + 2);
    return Verdict{.park = true};
  });
  EXPECT_EQ(submit(*scheduler, request, second), id + 2);
  second->wait();
  // A paused request can be cancelled, and so ends a scheduler.
  const auto third =
      std::make_shared<Collector>([&](const DrawnToken&, size_t) { return Verdict{.park = true}; });
  scheduler->cancel(submit(*scheduler, request, third));
  third->wait();
  EXPECT_EQ(third->statistics.reason, FinishReason::kCancelled);
}

TEST_F(SchedulerTest, DirectUsersOfTheModelHaveTheirTurn) {
  const auto model = open_tiny();
  const auto scheduler = begin(model, kSmallSlices);
  const auto endless = std::make_shared<Collector>();
  const TextRequest request{.prompt = some_tokens(5), .ignore_model_stop_tokens = true};
  submit(*scheduler, request, endless);
  const auto session = [&] {
    const Turn turn(model, {}, -1);
    return std::move(Session::create(model)).value();
  }();
  for (int i = 0; i < 5; ++i) {
    const Turn turn(model, {session}, -1);
    ASSERT_EQ(turn.state(), Turn::State::kRunning);
    ASSERT_TRUE(session->eval(some_tokens(3)).ok());
  }
  endless->wait();
  EXPECT_EQ(endless->tokens, alone(request));
}

// In a step of both, which says nothing of who is to blame: whoever is evaluated first by itself.
TEST_F(SchedulerTest, AReadThatFailsFailsOneRequestAlone) {
  const std::string weights = folder_ / "model.safetensors";
  const std::string whole = testing::read_bytes(weights);
  TextRequest request{.prompt = some_tokens(20), .sampler = {.seed = 4}, .tokens_max = 12};
  const Tokens expected = alone(request);
  const auto scheduler = begin(open_tiny({.expert_cache_bytes = 0}), {.sharing = Sharing::kSteps});
  Gate gate;
  std::vector<std::shared_ptr<Collector>> receivers;
  for (const uint64_t seed : {4, 9}) {
    receivers.push_back(std::make_shared<Collector>([&, seed](const DrawnToken&, size_t before) {
      if (seed == 4 && before == 0) gate.pass();
      if (seed == 9 && before == 4) std::filesystem::resize_file(weights, whole.size() / 2);
      return Verdict{};
    }));
    receivers.back()->on_error = [&] { testing::write_bytes(weights, whole); };
    request.sampler.seed = seed;
    submit(*scheduler, request, receivers.back());
    if (seed == 4) gate.wait_for_arrival();
  }
  gate.open();
  for (const auto& receiver : receivers) receiver->wait();
  EXPECT_EQ(scheduler->counters().failed, 1u);
  const bool first_failed = !receivers[0]->error.ok();
  const Collector& failed = *receivers[first_failed ? 0 : 1];
  expect_error(failed.error, ErrorCode::kIo, {"expert ", weights});
  const Tokens of_other = alone(request);
  const Tokens& whole_one = first_failed ? expected : of_other;
  ASSERT_LT(failed.tokens.size(), 12u);
  EXPECT_EQ(
      failed.tokens,
      Tokens(whole_one.begin(), whole_one.begin() + static_cast<ptrdiff_t>(failed.tokens.size())));
  EXPECT_EQ(receivers[first_failed ? 1 : 0]->tokens, first_failed ? of_other : expected);
  EXPECT_EQ(run(*scheduler, request)->tokens, of_other);
}

TEST_F(SchedulerTest, AnswersShareStepsAndHaveTheBitsTheyHaveAlone) {
  const auto scheduler =
      begin(open_tiny(), {.active_max = 6, .sharing = Sharing::kSteps, .kept_tokens_max = 0});
  // Nobody goes on before all are there.
  Gate gate;
  std::vector<TextRequest> requests;
  std::vector<std::shared_ptr<Collector>> receivers;
  for (int i = 0; i < 6; ++i) {
    requests.push_back({.prompt = some_tokens(static_cast<size_t>(i == 5 ? 90 : 5 + 7 * i)),
                        .sampler = {.seed = static_cast<uint64_t>(i)},
                        .tokens_max = 20,
                        .prompt_logprobs = i == 4});
    receivers.push_back(std::make_shared<Collector>([&, i](const DrawnToken&, size_t before) {
      if (i == 0 && before == 0) gate.pass();
      return Verdict{.stop = i == 2 && before == 6};
    }));
    submit(*scheduler, requests.back(), receivers.back());
    if (i == 0) gate.wait_for_arrival();
  }
  gate.open();
  for (const auto& receiver : receivers) receiver->wait();
  const SchedulerCounters counters = scheduler->counters();
  // Alone, each step has one text. How many there are depends on time: pieces of prompts may be as
  // short as two tokens.
  EXPECT_GT(2 * counters.step_texts, 3 * counters.steps);
  EXPECT_GT(counters.step_tokens, 2 * counters.steps);
  for (size_t i = 0; i < 6; ++i) {
    Tokens expected = alone(requests[i]);
    if (i == 2) expected.resize(7);
    EXPECT_EQ(receivers[i]->tokens, expected) << i;
  }
}

// Others draft beside it: the record has each of its tokens once, with what it chose by itself.
TEST_F(SchedulerTest, RecordedRoutesAreOfTheTextsOwnTokens) {
  const auto recorded = [&](DraftMode mode, bool has_company) {
    const auto model = open_tiny();
    model->drafts = {.mode = mode,
                     .make_source = source_of([](std::span<const TokenId> text, int64_t most) {
                       return Tokens(static_cast<size_t>(std::min<int64_t>(most, 3)), text.back());
                     })};
    const auto scheduler = begin(model, {.active_max = 3, .sharing = Sharing::kSteps});
    Gate gate;
    const auto record = std::make_shared<RouteRecord>(size_t{1} << 20);
    std::vector<std::shared_ptr<Collector>> receivers;
    for (const size_t length : {11u, 6u, 9u}) {
      const bool is_it = length == 6;
      if (!is_it && !has_company) continue;
      receivers.push_back(
          std::make_shared<Collector>([&, length](const DrawnToken&, size_t before) {
            if (length == 11 && before == 0) gate.pass();
            return Verdict{};
          }));
      submit(*scheduler,
             {.prompt = some_tokens(length), .tokens_max = 12, .routes = is_it ? record : nullptr},
             receivers.back());
      if (length == 11) gate.wait_for_arrival();
    }
    if (has_company) gate.open();
    for (const auto& receiver : receivers) receiver->wait();
    std::vector<std::vector<int32_t>> choices;
    for (const TokenRoutes& token : record->tokens()) {
      choices.push_back({static_cast<int32_t>(token.position)});
      for (const LayerChoice& layer : token.layers) {
        choices.back().insert(choices.back().end(), layer.experts.begin(), layer.experts.end());
      }
    }
    return choices;
  };
  const auto expected = recorded(DraftMode::kOff, false);
  ASSERT_EQ(expected.size(), 11u);
  EXPECT_EQ(recorded(DraftMode::kOn, false), expected);
  EXPECT_EQ(recorded(DraftMode::kOff, true), expected);
  EXPECT_EQ(recorded(DraftMode::kOn, true), expected);
}

TEST_F(SchedulerTest, APromptThatSeveralBeginWithIsEvaluatedOnce) {
  const auto scheduler = begin(open_tiny(), {.sharing = Sharing::kSteps});
  Gate gate;
  const auto first = std::make_shared<Collector>([&](const DrawnToken&, size_t before) {
    if (before == 0) gate.pass();
    return Verdict{};
  });
  submit(*scheduler, {.prompt = {5, 6, 7}, .tokens_max = 20}, first);
  gate.wait_for_arrival();
  std::vector<std::shared_ptr<Collector>> receivers;
  for (unsigned i = 0; i < 4; ++i) {
    receivers.push_back(std::make_shared<Collector>());
    submit(*scheduler, {.prompt = some_tokens(70), .sampler = {.seed = i}, .tokens_max = 5},
           receivers.back());
  }
  gate.open();
  first->wait();
  for (const auto& receiver : receivers) receiver->wait();
  EXPECT_EQ(scheduler->counters().prompt_tokens, 3u + 70u + 3u);
  EXPECT_EQ(receivers[3]->tokens,
            alone({.prompt = some_tokens(70), .sampler = {.seed = 3}, .tokens_max = 5}));
}

TEST_F(SchedulerTest, TextsThatGiveWayGoOnWhereTheyWere) {
  const auto model = open_tiny();
  for (const bool by_memory : {true, false}) {
    SchedulerOptions options{.active_max = by_memory ? 4 : 1, .patience = milliseconds(0)};
    // One of them, and what the other has become.
    const Engine& engine = *model->engine;
    if (by_memory) options.state_bytes_max = 2 * engine.state_bytes(100) + engine.state_bytes(0);
    const auto scheduler = begin(model, options);
    const TextRequest request{.prompt = some_tokens(40), .sampler = {.seed = 7}, .tokens_max = 60};
    Gate gate;
    const auto first = std::make_shared<Collector>([&](const DrawnToken&, size_t before) {
      if (before == 10) gate.pass();
      return Verdict{};
    });
    submit(*scheduler, request, first);
    gate.wait_for_arrival();
    TextRequest other = request;
    other.sampler.seed = 8;
    other.top_logprobs = 0;
    const auto second = std::make_shared<Collector>();
    submit(*scheduler, other, second);
    gate.open();
    first->wait();
    second->wait();
    EXPECT_GT(scheduler->counters().preemptions, 2u) << by_memory;
    EXPECT_EQ(scheduler->counters().preempted, 0);
    EXPECT_EQ(first->tokens, alone(request));
    EXPECT_EQ(second->tokens, alone(other));
    // Snapshots hold all that was evaluated.
    EXPECT_LE(scheduler->counters().prompt_tokens, 40u + 40u + scheduler->counters().preemptions);
  }
}

TEST_F(SchedulerTest, WhoIsParkedGivesWayToWhoWaits) {
  const auto scheduler = begin(open_tiny(), {.active_max = 1, .patience = milliseconds(0)});
  std::promise<void> parked;
  const TextRequest request{.prompt = some_tokens(5), .sampler = {.seed = 1}, .tokens_max = 9};
  const auto first = collector_that_parks(parked);
  const TextRequestId id = submit(*scheduler, request, first);
  parked.get_future().wait();
  EXPECT_EQ(run(*scheduler, request)->tokens.size(), 9u);
  EXPECT_EQ(scheduler->counters().preempted, 1);
  EXPECT_EQ(scheduler->counters().running, 0);
  scheduler->resume(id);
  first->wait();
  EXPECT_EQ(first->tokens, alone(request));
}

TEST_F(SchedulerTest, DrainRefusesNewRequestsAndWaitsForTheOthers) {
  const auto scheduler = begin(open_tiny(), kSmallSlices);
  std::vector<std::shared_ptr<Collector>> receivers;
  for (int i = 0; i < 6; ++i) {
    receivers.push_back(std::make_shared<Collector>());
    submit(*scheduler, {.prompt = some_tokens(5), .tokens_max = 5}, receivers.back());
  }
  scheduler->drain();
  for (const auto& receiver : receivers) EXPECT_EQ(receiver->tokens.size(), 5u);
  expect_error(scheduler->submit({.prompt = {1}}, receivers.front()),
               ErrorCode::kFailedPrecondition, {"no more"});
  scheduler->drain();
}

TEST_F(SchedulerTest, TheDestructorCancelsWhatRunsAndWhatWaits) {
  std::vector<std::shared_ptr<Collector>> receivers;
  {
    Gate gate;
    const auto scheduler = begin(open_tiny(), kSmallSlices);
    for (int i = 0; i < 8; ++i) {
      receivers.push_back(std::make_shared<Collector>([&, i](const DrawnToken&, size_t before) {
        if (i == 0 && before == 1) gate.pass();
        return Verdict{.park = i == 1};
      }));
      submit(*scheduler, {.prompt = some_tokens(30)}, receivers.back());
    }
    gate.wait_for_arrival();
    gate.open();
  }
  for (const auto& receiver : receivers) {
    receiver->wait();
    EXPECT_TRUE(receiver->error.ok());
  }
  EXPECT_EQ(receivers.back()->statistics.reason, FinishReason::kCancelled);
}

}  // namespace
}  // namespace moeflux
