// Requests whose drafts come from a source: a small model, or one that fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chat/drafts/draft_model.h"
#include "chat/drafts/draft_options.h"
#include "schedule/scheduler.h"
#include "schedule/scheduler_test_util.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using Tokens = std::vector<TokenId>;
using Texts = std::vector<std::shared_ptr<Collector>>;

/// Steps of an engine, each of which comes to the first layer anew.
class StepCounter final : public RouteObserver {
 public:
  explicit StepCounter(Engine& engine) : engine_(engine) {
    engine.experts().routes().observe(this);
  }
  ~StepCounter() override { engine_.experts().routes().observe(nullptr); }
  StepCounter(const StepCounter&) = delete;
  StepCounter& operator=(const StepCounter&) = delete;

  void routed(const LayerRoutes& routes, std::span<const ExpertId> /*misses*/) override {
    if (index(routes.layer) == 0 && std::exchange(layer_, 0) != 0) ++count_;
    layer_ = index(routes.layer);
  }
  int64_t take() { return std::exchange(count_, 0); }

 private:
  Engine& engine_;
  int64_t layer_ = -1;
  int64_t count_ = 0;
};

/// The model drafts with one of layers that cannot forget, or, as it does then, of attention alone.
class SchedulerDrafts : public SchedulerTest, public ::testing::WithParamInterface<bool> {
 protected:
  SchedulerDrafts() {
    if (GetParam()) write_attention_model();
  }

  /// Weights that are those of open_tiny(), or others.
  static void write_other(const std::string& folder) {
    testing::TinyModel other =
        testing::make_tiny_model({.experts = testing::ExpertNames::kSeparate});
    for (auto& [name, tensor] : other.tensors) {
      if (name.find("proj") == std::string::npos) continue;
      std::rotate(tensor.bytes.begin(), tensor.bytes.begin() + 4 * 19, tensor.bytes.end());
    }
    other.write(folder);
  }
  static std::shared_ptr<DraftModel> drafting(std::shared_ptr<OpenModel> model) {
    return std::make_shared<DraftModel>(std::move(model), 0.0f, kVocab);
  }
  /// Repetitions are left to the model as well.
  static DraftOptions drafts_of(const std::shared_ptr<DraftModel>& drafting,
                                DraftMode mode = DraftMode::kOn) {
    return {.mode = mode, .tokens_max = 5, .match_min = 1000, .make_source = [drafting] {
              return drafting->make_source();
            }};
  }

  static std::vector<TextRequest> requests(size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<TextRequest> all(count);
    for (TextRequest& one : all) {
      one.prompt = some_tokens(2 + random() % 40);
      one.prompt[1] = static_cast<TokenId>(random() % kVocab);
      one.tokens_max = 10 + static_cast<int64_t>(random() % 30);
      one.top_logprobs = 0;
      one.sampler = {.temperature = random() % 2 == 0 ? 0.0f : 0.8f, .seed = random()};
    }
    return all;
  }
  static Texts write(const std::shared_ptr<OpenModel>& model, const std::vector<TextRequest>& all,
                     const SchedulerOptions& options = {}, SchedulerCounters* counters = nullptr) {
    const auto scheduler = begin(model, options);
    Texts texts;
    for (const TextRequest& request : all) {
      texts.push_back(std::make_shared<Collector>());
      submit(*scheduler, request, texts.back());
    }
    for (const auto& text : texts) text->wait();
    if (counters != nullptr) *counters = scheduler->counters();
    return texts;
  }
  static void expect_same(const Texts& with, const Texts& without) {
    for (size_t i = 0; i < with.size(); ++i) {
      EXPECT_TRUE(with[i]->error.ok()) << i << " " << with[i]->error.error().to_string();
      EXPECT_EQ(with[i]->tokens, without[i]->tokens) << i;
      EXPECT_EQ(with[i]->logprobs, without[i]->logprobs) << i;
    }
  }
};

TEST_P(SchedulerDrafts, AModelThatDraftsForItselfIsAlwaysRight) {
  const auto model = open_tiny();
  std::vector<TextRequest> one = requests(1, 3);
  one.front().sampler.temperature = 0.0f;
  one.front().tokens_max = 60;
  const Texts without = write(model, one);
  model->drafts = drafts_of(drafting(open_tiny()));
  SchedulerCounters counters;
  const Texts with = write(model, one, {}, &counters);
  expect_same(with, without);
  const DraftCounts& drafts = with.front()->statistics.drafts;
  EXPECT_EQ(drafts.accepted, drafts.drafted);
  EXPECT_GE(drafts.accepted, 45);
  EXPECT_GT(drafts.drafting_seconds, 0.0);
  EXPECT_GE(with.front()->statistics.decode_seconds, drafts.drafting_seconds);
  EXPECT_LT(counters.steps, 20u);
}

TEST_P(SchedulerDrafts, AnotherModelsDraftsKeepEveryText) {
  const testing::TempFolder folder;
  write_other(folder.path());
  const auto model = open_tiny();
  const auto other = drafting(open_text(folder.path(), {}));
  int64_t accepted = 0;
  int64_t drafted = 0;
  for (unsigned seed = 0; seed < 6; ++seed) {
    const auto all = requests(1 + seed % 4, seed);
    model->drafts = {};
    const Texts without = write(model, all);
    for (const DraftMode mode : {DraftMode::kOn, DraftMode::kAuto}) {
      model->drafts = drafts_of(other, mode);
      const Texts with = write(model, all);
      expect_same(with, without);
      for (const auto& text : with) {
        accepted += text->statistics.drafts.accepted;
        drafted += text->statistics.drafts.drafted;
      }
    }
  }
  EXPECT_GT(drafted, 100);
  EXPECT_LT(accepted, drafted);
}

// Four texts are followed and drafted for in hardly more steps than one.
TEST_P(SchedulerDrafts, RequestsShareTheStepsOfAModelThatDrafts) {
  const auto model = open_tiny();
  std::vector<TextRequest> all = requests(4, 3);
  for (TextRequest& one : all) {
    one.prompt.resize(2);
    one.sampler.temperature = 0.0f;
    one.tokens_max = 60;
  }
  const Texts without = write(model, all);
  const auto small = open_tiny();
  StepCounter steps(*small->engine);
  model->drafts = drafts_of(drafting(small));
  model->drafts.tokens_max = 2;  // all rows of four texts fit into a step
  int64_t most = 0;
  int64_t sum = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    expect_same(write(model, {all[i]}), {without[i]});
    const int64_t count = steps.take();
    most = std::max(most, count);
    sum += count;
  }
  expect_same(write(model, all, {.sharing = Sharing::kSteps}), without);
  const int64_t together = steps.take();
  EXPECT_LT(2 * together, sum);
  EXPECT_LT(together, 2 * most);
}

// Snapshots and states that are made again belong to the model, and the one that drafts reads on.
TEST_P(SchedulerDrafts, SurvivePreemption) {
  const auto model = open_tiny();
  auto all = requests(3, 9);
  for (TextRequest& one : all) one.tokens_max = 40;
  const Texts without = write(model, all);
  model->drafts = drafts_of(drafting(open_tiny()));
  SchedulerCounters counters;
  const Texts with =
      write(model, all, {.active_max = 1, .patience = std::chrono::milliseconds(0)}, &counters);
  expect_same(with, without);
  EXPECT_GT(counters.preemptions, 0u);
}

// The next turn of a conversation begins with the last one: what was followed is not read again.
TEST_P(SchedulerDrafts, TextsGoOnFromThoseThatHaveEnded) {
  const auto model = open_tiny();
  const auto small = open_tiny();
  model->drafts = drafts_of(drafting(small));
  TextRequest request = requests(1, 5).front();
  request.prompt = some_tokens(40);
  const Texts first = write(model, {request});
  const uint64_t before = small->counters().evaluated_tokens;
  request.prompt = joined(request.prompt, first.front()->tokens);
  request.tokens_max = 2;
  write(model, {request});
  EXPECT_LT(small->counters().evaluated_tokens - before, 40u);
}

TEST_P(SchedulerDrafts, EndWhereTheirModelCannotBeRead) {
  const testing::TempFolder folder;
  testing::make_tiny_model({.experts = testing::ExpertNames::kSeparate}).write(folder.path());
  const auto model = open_tiny();
  const auto small = open_text(folder.path(), {.expert_cache_bytes = 0});
  const std::string weights = folder / "model.safetensors";
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) / 2);
  const auto all = requests(2, 4);
  const Texts without = write(model, all);
  model->drafts = drafts_of(drafting(small));
  const Texts with = write(model, all);
  expect_same(with, without);
  for (const auto& text : with) EXPECT_EQ(text->statistics.drafts.drafted, 0);
}

// Four texts share the states of one context of 64 tokens and a little more.
TEST_P(SchedulerDrafts, EndWhereTheirModelsMemoryEnds) {
  constexpr uint64_t kMemory = 256 << 10;
  const auto has_none = [](const auto& text) { return text->statistics.drafts.drafted == 0; };
  const auto model = open_tiny();
  const auto small =
      open_tiny({.context_length = 64, .read_memory = [] {
                   return HostMemory{.total_bytes = kMemory, .available_bytes = kMemory};
                 }});
  std::vector<TextRequest> all = requests(4, 8);
  for (TextRequest& one : all) one.tokens_max = 20;
  const Texts without = write(model, all);
  const auto shared = drafting(small);
  model->drafts = drafts_of(shared);
  const Texts some = write(model, all);
  expect_same(some, without);
  EXPECT_LT(std::ranges::count_if(some, has_none), 4);
  // Texts that go on have the memory of those that have ended, and none of each other's.
  const auto session = Session::create(model);
  ASSERT_TRUE(session.ok());
  const Tokens text = some_tokens(50);
  const auto draft = [&](DraftSource& source) {
    return source.draft({.text = text, .tokens_max = 5, .session = **session});
  };
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<DraftSource>> sources;
    Result<Draft> last = Draft{};
    while (last.ok() && sources.size() < 100) {
      sources.push_back(shared->make_source());
      // The first call may have to make room.
      last = draft(*sources.back());
      if (last.ok() && last->tokens.empty()) last = draft(*sources.back());
    }
    testing::expect_error(last, ErrorCode::kResourceExhausted, {small->directory, "of state"});
    EXPECT_GT(sources.size(), 1u) << last.error().message();
    EXPECT_TRUE(draft(*sources.front()).ok());
  }
  // A text that is longer than the context of the model that drafts has none from there on.
  all = {{.prompt = some_tokens(50), .tokens_max = 40}};
  model->drafts = {};
  const Texts alone = write(model, all);
  model->drafts = drafts_of(shared);
  const Texts with = write(model, all);
  expect_same(with, alone);
  EXPECT_LE(with.front()->statistics.drafts.accepted, 15);
}

// Its text goes on as it would have without the source.
TEST_P(SchedulerDrafts, OfASourceThatFailsAreAskedForNoMore) {
  class Failing final : public DraftSource {
   public:
    explicit Failing(int& calls) : calls_(calls) {}
    Result<Draft> draft(const DraftQuery& query) override {
      EXPECT_LT(query.session.tokens().size(), query.text.size());
      if (++calls_ == 3) return make_error(ErrorCode::kIo, "the drive is gone");
      return Draft{.tokens = {query.text.back()}, .confidences = {0.5f}};
    }

   private:
    int& calls_;
  };
  int calls = 0;
  const TextRequest request = {.prompt = some_tokens(9), .tokens_max = 12};
  const Tokens expected = alone(request);
  const auto model = open_tiny();
  std::vector<std::string> told;
  model->drafts = {.mode = DraftMode::kOn,
                   .make_source = [&calls] { return std::make_unique<Failing>(calls); },
                   .on_failure = [&told](const std::string& line) { told.push_back(line); }};
  const auto receiver = run(*begin(model), request);
  EXPECT_EQ(receiver->tokens, expected);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(told, std::vector<std::string>{"drafts end for a text: i/o error: the drive is gone"});
  EXPECT_LE(receiver->statistics.drafts.drafted, 2);
  EXPECT_GT(receiver->statistics.drafts.drafting_seconds, 0.0);
}

INSTANTIATE_TEST_SUITE_P(All, SchedulerDrafts, ::testing::Bool(), [](const auto& forgets) {
  return forgets.param ? "Attention" : "FixedStates";
});

}  // namespace
}  // namespace moeflux
