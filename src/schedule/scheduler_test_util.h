// Receivers that remember what they were told, and models to schedule.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "chat/session.h"
#include "engine/tiny_engine_test_util.h"
#include "schedule/scheduler.h"

namespace moeflux {

/// Its members but wait() are to be read after that.
class Collector final : public TextReceiver {
 public:
  /// Told each token, and how many there were before.
  using OnToken = std::function<Verdict(const DrawnToken& token, size_t before)>;
  explicit Collector(OnToken on_token = {}) : on_token_(std::move(on_token)) {}

  void on_progress(const PromptProgress& told) override { progress.push_back(told); }
  void on_prompt_logprobs(std::span<const TokenLogprobs> told) override {
    for (const TokenLogprobs& one : told) prompt_logprobs.push_back(one.logprob);
    ++prompt_logprobs_calls;
  }
  Verdict on_token(const DrawnToken& drawn) override {
    text += drawn.text;
    if (drawn.logprobs != nullptr) logprobs.push_back(drawn.logprobs->logprob);
    const size_t before = tokens.size();
    (drawn.is_stop ? stop_tokens : tokens).push_back(drawn.token);
    return on_token_ ? on_token_(drawn, before) : Verdict{};
  }
  void on_done(const TextStatistics& told) override {
    statistics = told;
    ended_.set_value();
  }
  void on_failed(const Error& told) override {
    error = told;
    if (on_error) on_error();
    ended_.set_value();
  }
  /// A second last call would throw.
  void wait() { ended_.get_future().get(); }
  /// False where it hangs, after a time in which nothing else would.
  bool ends() { return ended_.get_future().wait_for(std::chrono::seconds(60)) == kReady; }

  std::function<void()> on_error;
  std::vector<TokenId> tokens;
  std::vector<TokenId> stop_tokens;
  std::string text;
  std::vector<float> logprobs;
  std::vector<float> prompt_logprobs;
  int prompt_logprobs_calls = 0;
  std::vector<PromptProgress> progress;
  TextStatistics statistics;
  Status error;

 private:
  static constexpr std::future_status kReady = std::future_status::ready;
  OnToken on_token_;
  std::promise<void> ended_;
};

/// A gate that receivers wait at.
class Gate {
 public:
  /// Says that somebody is there, and waits until it opens.
  void pass() {
    arrived_.set_value();
    open_future_.wait();
  }
  void wait_for_arrival() { arrived_.get_future().wait(); }
  void open() { open_.set_value(); }

 private:
  std::promise<void> arrived_;
  std::promise<void> open_;
  std::shared_future<void> open_future_ = open_.get_future().share();
};

/// The tiny model, whose first layer cannot forget, or one of attention alone; no tokenizer.
class SchedulerTest : public TinyEngineTest {
 protected:
  static std::shared_ptr<OpenModel> open_text(const std::string& folder, EngineOptions engine,
                                              ModelText text = {}) {
    if (engine.prefill_chunk == 0) engine.prefill_chunk = 16;
    engine.reader_threads = 1;
    auto model = open_model(
        folder, {.device = {.threads = 1, .precision = "f32"}, .engine = engine}, std::move(text));
    EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().to_string());
    return std::move(model).value();
  }
  std::shared_ptr<OpenModel> open_tiny(const EngineOptions& engine = {}) {
    return open_text(folder_.path(), engine);
  }
  static std::unique_ptr<Scheduler> begin(const std::shared_ptr<OpenModel>& model,
                                          const SchedulerOptions& options = {}) {
    auto scheduler = Scheduler::start(model, options);
    EXPECT_TRUE(scheduler.ok()) << (scheduler.ok() ? "" : scheduler.error().to_string());
    return std::move(scheduler).value();
  }
  static TextRequestId submit(Scheduler& scheduler, const TextRequest& request,
                              const std::shared_ptr<Collector>& receiver) {
    const auto id = scheduler.submit(request, receiver);
    EXPECT_TRUE(id.ok()) << (id.ok() ? "" : id.error().to_string());
    return id.ok() ? *id : 0;
  }
  static std::shared_ptr<Collector> run(Scheduler& scheduler, const TextRequest& request,
                                        Collector::OnToken on_token = {}) {
    auto receiver = std::make_shared<Collector>(std::move(on_token));
    if (submit(scheduler, request, receiver) != 0) receiver->wait();
    EXPECT_TRUE(receiver->error.ok()) << receiver->error.error().to_string();
    return receiver;
  }
  /// The tokens of a request that runs by itself on a model of its own.
  std::vector<TokenId> alone(TextRequest request) {
    request.reuse = request.keep = false;
    return run(*begin(open_tiny()), request)->tokens;
  }
  static std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
};

}  // namespace moeflux
