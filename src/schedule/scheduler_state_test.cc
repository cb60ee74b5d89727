// States of ended requests: they save work, change no bit and have bounds.
#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "schedule/scheduler.h"
#include "schedule/scheduler_test_util.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using std::chrono::milliseconds;
using testing::expect_error;

/// Over both models: who cannot forget, and who can at any position.
class SchedulerStateTest : public SchedulerTest, public ::testing::WithParamInterface<bool> {
 protected:
  SchedulerStateTest() {
    if (forgets()) write_attention_model();
  }
  static bool forgets() { return GetParam(); }
  static uint64_t evaluated(const Scheduler& scheduler) {
    return scheduler.counters().prompt_tokens;
  }
  Tokens tokens(size_t n, unsigned seed) {
    std::mt19937 random(seed);
    Tokens tokens(n);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % kVocab);
    return tokens;
  }
};

INSTANTIATE_TEST_SUITE_P(All, SchedulerStateTest, ::testing::Bool(), [](const auto& model) {
  return model.param ? "Forgets" : "CannotForget";
});

TEST_P(SchedulerStateTest, AFollowUpEvaluatesOnlyWhatIsNew) {
  const auto scheduler = begin(open_tiny());
  const TextRequest first{.prompt = tokens(100, 1), .sampler = {.seed = 1}, .tokens_max = 20};
  const auto one = run(*scheduler, first);
  EXPECT_EQ(evaluated(*scheduler), 100u);
  ASSERT_EQ(one->tokens.size(), 20u);

  // The last token was drawn, not evaluated.
  TextRequest second = first;
  second.prompt = joined(joined(first.prompt, one->tokens), tokens(30, 2));
  const auto two = run(*scheduler, second);
  EXPECT_EQ(two->statistics.cached_tokens, 119);
  EXPECT_EQ(evaluated(*scheduler), 100u + 31u);
  EXPECT_EQ(two->progress.front().cached, 119);

  // The same again: its prompt's last token.
  const auto again = run(*scheduler, second);
  EXPECT_EQ(again->statistics.cached_tokens, 149);
  EXPECT_EQ(evaluated(*scheduler), 100u + 31u + 1u);
  EXPECT_EQ(again->tokens, two->tokens);

  // Another answer to the first prompt, as an earlier turn is edited.
  TextRequest edited = first;
  edited.prompt.push_back(5);
  edited.prompt.push_back(6);
  const auto other = run(*scheduler, edited);
  EXPECT_EQ(other->statistics.cached_tokens, forgets() ? 100 : 99);

  EXPECT_EQ(two->tokens, alone(second));
  EXPECT_EQ(other->tokens, alone(edited));
  const SchedulerCounters counters = scheduler->counters();
  EXPECT_EQ(counters.prefix_query_tokens, 100u + 150u + 150u + 102u);
  EXPECT_EQ(counters.prefix_hit_tokens, 119u + 149u + (forgets() ? 100u : 99u));
  EXPECT_EQ(counters.first_tokens, 4u);
  EXPECT_EQ(counters.begun, 4u);
}

TEST_P(SchedulerStateTest, WhereTextsBranchOffTheNextOneBegins) {
  const auto scheduler = begin(open_tiny());
  const Tokens common = tokens(90, 1);
  for (unsigned i = 0; i < 3; ++i) {
    const TextRequest request{.prompt = joined(common, tokens(20, 10 + i)), .tokens_max = 3};
    const auto found = run(*scheduler, request);
    // A model that cannot forget leaves a checkpoint there the second time.
    EXPECT_EQ(found->statistics.cached_tokens, i == 0 || (i == 1 && !forgets()) ? 0 : 90) << i;
    EXPECT_EQ(found->tokens, alone(request));
  }
}

TEST_P(SchedulerStateTest, ATextMayBeginFromOneThatRuns) {
  const auto scheduler =
      begin(open_tiny(), {.sharing = Sharing::kSlices, .slice_time = milliseconds(0)});
  Gate gate;
  const TextRequest request{.prompt = tokens(100, 1), .sampler = {.seed = 1}, .tokens_max = 20};
  const auto first = std::make_shared<Collector>([&](const DrawnToken&, size_t before) {
    if (before == 2) gate.pass();
    return Verdict{};
  });
  submit(*scheduler, request, first);
  gate.wait_for_arrival();
  const auto second = std::make_shared<Collector>();
  submit(*scheduler, request, second);
  gate.open();
  first->wait();
  second->wait();
  EXPECT_EQ(second->statistics.cached_tokens, 99);
  EXPECT_EQ(second->tokens, first->tokens);
  EXPECT_EQ(first->tokens, alone(request));
}

TEST_P(SchedulerStateTest, StatesAreSharedWithinAClientAlone) {
  const testing::TempFolder kept;
  const EngineOptions engine{.prefix_cache_bytes = 1 << 24, .prefix_cache_directory = kept.path()};
  TextRequest request{.prompt = tokens(50, 1), .tokens_max = 3};
  const auto cached = [&](Scheduler& scheduler, const std::string& client) {
    request.client = client;
    return run(scheduler, request)->statistics.cached_tokens;
  };
  for (const bool begins_anew : {false, true}) {  // then from the folder
    const auto scheduler = begin(open_tiny(engine));
    for (const char* client : {"", "ann", "bob"}) {
      EXPECT_EQ(cached(*scheduler, client), begins_anew ? 49 : 0) << client;
      EXPECT_EQ(cached(*scheduler, client), 49) << client;
    }
    EXPECT_EQ(cached(*scheduler, "eve"), begins_anew ? 49 : 0);
    scheduler->drain();
  }
}

TEST_P(SchedulerStateTest, NobodyNeedsToKeepOrToReuse) {
  const auto scheduler = begin(open_tiny());
  TextRequest request{.prompt = tokens(50, 1), .tokens_max = 3, .keep = false};
  run(*scheduler, request);
  EXPECT_EQ(scheduler->counters().kept_texts, 0);
  request.keep = true;
  run(*scheduler, request);
  EXPECT_EQ(evaluated(*scheduler), 100u);
  request.reuse = false;
  EXPECT_EQ(run(*scheduler, request)->statistics.cached_tokens, 0);
  scheduler->drain();
  EXPECT_EQ(scheduler->counters().kept_texts, 2);
  EXPECT_EQ(scheduler->counters().kept_tokens, 2 * 52);
}

TEST_P(SchedulerStateTest, WhatWasNotUsedForLongestGoesFirst) {
  const auto scheduler = begin(open_tiny(), {.kept_tokens_max = 120});
  const auto request = [&](unsigned seed) {
    return TextRequest{.prompt = tokens(50, seed), .tokens_max = 3};
  };
  const auto cached = [&](unsigned seed) {
    return run(*scheduler, request(seed))->statistics.cached_tokens;
  };
  EXPECT_EQ(cached(1), 0);
  EXPECT_EQ(cached(2), 0);
  EXPECT_EQ(cached(3), 0);  // the first goes
  EXPECT_EQ(cached(3), 49);
  EXPECT_EQ(cached(1), 0);
  run(*scheduler, {.prompt = tokens(121, 9), .tokens_max = 1});  // more than all
  EXPECT_EQ(cached(1), 49);
}

TEST_P(SchedulerStateTest, ATextThatDoesNotFitBesideOthersWaits) {
  const auto model = open_tiny({.context_length = 1024});
  const uint64_t all = model->engine->state_bytes(1024);
  const auto scheduler = begin(model, {.slice_time = milliseconds(0), .state_bytes_max = all});
  run(*scheduler, {.prompt = tokens(300, 5), .tokens_max = 1});
  EXPECT_EQ(scheduler->counters().finished, 1u);
  Gate gate;
  const auto first = std::make_shared<Collector>([&](const DrawnToken&, size_t before) {
    if (before == 0) gate.pass();
    return Verdict{};
  });
  const TextRequest large{.prompt = tokens(600, 1), .tokens_max = 300};
  const auto second = std::make_shared<Collector>();
  submit(*scheduler, large, first);
  gate.wait_for_arrival();
  EXPECT_EQ(scheduler->counters().kept_texts, 0);  // gave way
  submit(*scheduler, large, second);
  TextRequest small = large;
  small.prompt.resize(5);
  small.tokens_max = 5;
  const auto third = std::make_shared<Collector>();
  submit(*scheduler, small, third);
  gate.open();
  for (const auto& receiver : {first, second, third}) receiver->wait();
  // Nobody overtakes who waits.
  EXPECT_EQ(second->progress.front().queue_position, 1);
  EXPECT_EQ(third->progress.front().queue_position, 2);
  EXPECT_GE(second->statistics.cached_tokens, 599);  // it began after the first had ended
  EXPECT_EQ(second->tokens, first->tokens);
}

TEST_P(SchedulerStateTest, AfterARestartTextsGoOnFromTheFolder) {
  const testing::TempFolder kept;
  const EngineOptions engine{.prefix_cache_bytes = 1 << 24, .prefix_cache_directory = kept.path()};
  TextRequest request{.prompt = tokens(100, 1), .sampler = {.seed = 2}, .tokens_max = 10};
  Tokens answer;
  {
    const auto scheduler = begin(open_tiny(engine));
    answer = run(*scheduler, request)->tokens;
    scheduler->drain();
    EXPECT_EQ(scheduler->counters().prefix_write_failures, 0u);
  }
  const auto scheduler = begin(open_tiny(engine));
  const auto again = run(*scheduler, request);
  EXPECT_EQ(again->statistics.cached_tokens, 99);
  EXPECT_EQ(again->tokens, answer);
  request.prompt = joined(joined(request.prompt, answer), tokens(7, 3));
  const auto next = run(*begin(open_tiny(engine)), request);
  EXPECT_EQ(next->statistics.cached_tokens, 109);
  EXPECT_EQ(next->tokens, alone(request));
}

/// Refuses some of the memory that it is asked for.
class RefusingDevice final : public Device {
 public:
  explicit RefusingDevice(std::unique_ptr<Device> inner) : inner_(std::move(inner)) {}
  std::string_view name() const override { return inner_->name(); }
  std::string_view description() const override { return inner_->description(); }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    if (refusals > 0) {
      --refusals;
      return make_error(ErrorCode::kResourceExhausted, "no memory for {} bytes", bytes);
    }
    return inner_->allocate(bytes, kind);
  }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t scratch_bytes) override {
    return inner_->create_encoder(scratch_bytes);
  }
  std::atomic<int> refusals = 0;

 private:
  std::unique_ptr<Device> inner_;
};

/// A model without an engine where it does not open, and how often its device refuses memory.
std::pair<std::shared_ptr<OpenModel>, std::atomic<int>*> open_on_refusing_device(
    const std::string& folder) {
  auto model = std::make_shared<OpenModel>();
  auto device =
      std::make_unique<RefusingDevice>(testing::make_test_device({.device = "reference"}));
  std::atomic<int>& refusals = device->refusals;
  model->device = std::move(device);
  auto engine = Engine::open(folder, *model->device, {.prefill_chunk = 64});
  EXPECT_TRUE(engine.ok()) << engine.error().to_string();
  if (engine.ok()) model->engine = std::move(engine).value();
  return {std::move(model), &refusals};
}

TEST_P(SchedulerStateTest, WhereMemoryRunsOutATextBeginsAgainAlone) {
  const auto [model, refusals_of_device] = open_on_refusing_device(folder_.path());
  ASSERT_NE(model->engine, nullptr);
  std::atomic<int>& refusals = *refusals_of_device;
  const auto scheduler = begin(model, {.sharing = Sharing::kSlices, .slice_time = milliseconds(0)});
  // Its 257th token needs a page.
  const TextRequest request{.prompt = tokens(250, 1), .sampler = {.seed = 1}, .tokens_max = 20};
  const TextRequest small{.prompt = tokens(20, 2), .sampler = {.seed = 1}, .tokens_max = 40};
  const Tokens expected = run(*scheduler, request)->tokens;
  const auto fail_at = [](std::atomic<int>& of_device, int count) {
    return std::make_shared<Collector>([&of_device, count](const DrawnToken&, size_t before) {
      if (before == 6) of_device = count;
      return Verdict{};
    });
  };
  Gate gate;
  const auto beside = std::make_shared<Collector>([&](const DrawnToken&, size_t before) {
    if (before == 0) gate.pass();
    return Verdict{};
  });
  submit(*scheduler, small, beside);
  gate.wait_for_arrival();
  const auto retried = fail_at(refusals, 2);  // for all tensors in one, then for one
  TextRequest anew = request;
  anew.reuse = false;
  submit(*scheduler, anew, retried);
  gate.open();
  retried->wait();
  beside->wait();
  EXPECT_TRUE(retried->error.ok());
  EXPECT_EQ(retried->tokens, expected);
  EXPECT_EQ(beside->tokens.size(), 40u);
  EXPECT_EQ(refusals, 0);
  EXPECT_GE(evaluated(*scheduler), 250u + 250u + 256u + 20u);
  // Alone there is nobody to wait for, nor memory that somebody gave back: at the second try at the
  // latest.
  const auto [other, refusals_of_other] = open_on_refusing_device(folder_.path());
  ASSERT_NE(other->engine, nullptr);
  const auto lone = begin(other);
  const auto failing = fail_at(*refusals_of_other, 1000);
  submit(*lone, anew, failing);
  failing->wait();
  expect_error(failing->error, ErrorCode::kResourceExhausted, {"no memory"});
  *refusals_of_other = 0;
  EXPECT_EQ(run(*lone, request)->tokens, expected);
}

// An answer that nobody takes stays parked: with the memory that ran out for it once, and for good.
TEST_P(SchedulerStateTest, WhereMemoryRanOutATextThatNobodyTakesHoldsNobodyUp) {
  const auto [model, refusals_of_device] = open_on_refusing_device(folder_.path());
  ASSERT_NE(model->engine, nullptr);
  std::atomic<int>& refusals = *refusals_of_device;
  const auto scheduler = begin(model, {.sharing = Sharing::kSlices, .slice_time = milliseconds(0)});
  // Its 257th token needs a page.
  const TextRequest request{
      .prompt = tokens(250, 1), .sampler = {.seed = 1}, .tokens_max = 20, .reuse = false};
  const TextRequest small{.prompt = tokens(20, 2), .sampler = {.seed = 1}, .tokens_max = 40};
  const Tokens expected = run(*scheduler, request)->tokens;
  const auto refuse_once_and_park_at = [&](size_t token) {
    return std::make_shared<Collector>([&, token](const DrawnToken&, size_t before) {
      if (before == 6) refusals = 1;
      return Verdict{.park = before == token};
    });
  };
  Gate gate;
  const auto beside = std::make_shared<Collector>([&](const DrawnToken&, size_t before) {
    if (before == 0) gate.pass();
    return Verdict{};
  });
  submit(*scheduler, small, beside);
  gate.wait_for_arrival();
  const auto untaken = refuse_once_and_park_at(12);
  const TextRequestId parked = submit(*scheduler, request, untaken);
  gate.open();
  beside->wait();
  while (scheduler->counters().parked == 0) std::this_thread::yield();
  EXPECT_EQ(refusals, 0);
  const auto next = std::make_shared<Collector>();
  submit(*scheduler, small, next);
  ASSERT_TRUE(next->ends());
  EXPECT_EQ(next->tokens, beside->tokens);
  // Memory that a parked text has is given to who needs it.
  const auto needing = refuse_once_and_park_at(SIZE_MAX);
  submit(*scheduler, request, needing);
  ASSERT_TRUE(needing->ends());
  EXPECT_TRUE(needing->error.ok());
  EXPECT_EQ(needing->tokens, expected);
  EXPECT_EQ(refusals, 0);
  scheduler->resume(parked);
  ASSERT_TRUE(untaken->ends());
  EXPECT_EQ(untaken->tokens, expected);
}

/// A request and what its receiver does with it.
struct Drawn {
  TextRequest request;
  size_t cancel_at = SIZE_MAX;
  size_t park_at = SIZE_MAX;
  size_t force_at = SIZE_MAX;
  size_t stop_at = SIZE_MAX;
};

struct Outcome {
  std::vector<TokenId> tokens;
  std::vector<TokenId> stop_tokens;
  std::vector<float> logprobs;
  FinishReason reason = {};
  bool operator==(const Outcome&) const = default;
};

std::vector<Drawn> draw_requests(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  std::vector<std::vector<TokenId>> prefixes(3);
  for (auto& prefix : prefixes) {
    for (unsigned i = below(90); i-- > 0;) prefix.push_back(static_cast<TokenId>(below(64)));
  }
  std::vector<Drawn> all(40);
  for (Drawn& one : all) {
    TextRequest& request = one.request;
    request.prompt = prefixes[below(3)];
    for (unsigned i = 1 + below(30); i-- > 0;) {
      request.prompt.push_back(static_cast<TokenId>(below(64)));
    }
    request.sampler.seed = random();
    if (below(4) == 0) request.sampler.repeat_penalty = 1.3f;
    request.tokens_max = below(25);
    if (below(3) == 0) request.stop_tokens = {static_cast<TokenId>(below(64))};
    if (below(4) == 0) request.top_logprobs = static_cast<int32_t>(below(3));
    request.keep = below(4) > 0;
    request.reuse = below(4) > 0;
    for (size_t* at : {&one.cancel_at, &one.park_at, &one.force_at, &one.stop_at}) {
      if (below(5) == 0) *at = below(20);
    }
  }
  return all;
}

Outcome outcome_of(Scheduler& scheduler, const Drawn& drawn) {
  std::atomic<TextRequestId> id = 0;
  std::promise<void> parked;
  const auto receiver = std::make_shared<Collector>([&](const DrawnToken&, size_t before) {
    while (id == 0) std::this_thread::yield();  // submit() may still be returning
    if (before == drawn.cancel_at) scheduler.cancel(id);
    Verdict verdict{.stop = before == drawn.stop_at, .park = before == drawn.park_at};
    if (before == drawn.force_at) verdict.forced = {3, 4};
    if (verdict.park) parked.set_value();
    return verdict;
  });
  id = *scheduler.submit(drawn.request, receiver);
  // Ends, of whatever kind, are waited for in a thread of its own: a park may never come.
  std::thread resumer([&] {
    if (drawn.park_at != SIZE_MAX) {
      auto is_parked = parked.get_future();
      while (is_parked.wait_for(milliseconds(1)) != std::future_status::ready && id != 0) {
      }
      scheduler.resume(id);
    }
  });
  receiver->wait();
  const TextRequestId ended = id.exchange(0);
  EXPECT_NE(ended, 0u);
  resumer.join();
  EXPECT_TRUE(receiver->error.ok());
  return {receiver->tokens, receiver->stop_tokens, receiver->logprobs, receiver->statistics.reason};
}

TEST_P(SchedulerStateTest, ATextDependsOnItsRequestAlone) {
  const std::vector<Drawn> requests = draw_requests(forgets() ? 7 : 8);
  std::vector<Outcome> expected;
  {
    const auto scheduler = begin(open_tiny(), {.active_max = 1});
    for (Drawn drawn : requests) {
      drawn.request.reuse = drawn.request.keep = false;
      expected.push_back(outcome_of(*scheduler, drawn));
    }
  }
  const auto model = open_tiny({.expert_cache_bytes = 0, .prefill_chunk = 7});
  const SchedulerOptions slices{.active_max = 3,
                                .sharing = Sharing::kSlices,
                                .slice_time = milliseconds(0),
                                .kept_tokens_max = 400};
  SchedulerOptions steps = slices;
  steps.active_max = 9;  // more than a step has tokens
  steps.sharing = Sharing::kSteps;
  SchedulerOptions tight = steps;
  tight.patience = milliseconds(0);
  tight.state_bytes_max = model->engine->state_bytes(256);
  for (const SchedulerOptions& options : {slices, steps, tight}) {
    SCOPED_TRACE(options.active_max);
    const auto scheduler = begin(model, options);
    std::vector<Outcome> found(requests.size());
    std::atomic<size_t> next = 0;
    std::vector<std::thread> clients;
    for (int i = 0; i < 6; ++i) {
      clients.emplace_back([&] {
        for (size_t at = next++; at < requests.size(); at = next++) {
          found[at] = outcome_of(*scheduler, requests[at]);
        }
      });
    }
    for (std::thread& client : clients) client.join();
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(found[i], expected[i]) << i;
    if (options.state_bytes_max == 0) {
      EXPECT_GT(scheduler->counters().prefix_hit_tokens, 0u);
    } else {
      EXPECT_GT(scheduler->counters().preemptions, 0u);
    }
    scheduler->drain();
    EXPECT_LE(scheduler->counters().kept_tokens, 400);
  }
}

}  // namespace
}  // namespace moeflux
