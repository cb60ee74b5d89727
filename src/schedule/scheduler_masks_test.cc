// Texts whose masks take as long as a test says, beside others.
#include "schedule/scheduler_masks.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "chat/drafts/draft_model.h"
#include "chat/drafts/draft_test_util.h"
#include "schedule/scheduler.h"
#include "schedule/scheduler_test_util.h"
#include "schedule/third_constraint_test_util.h"

namespace moeflux {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// Called before each mask with the number of tokens so far.
using OnMask = std::function<Status(int64_t tokens)>;

/// Allows every token, and ends where `length` have come; negative: never.
class FreeMatcher final : public Matcher {
 public:
  FreeMatcher(OnMask on_mask, std::function<void()> on_stop, int64_t length)
      : on_mask_(std::move(on_mask)), on_stop_(std::move(on_stop)), length_(length) {}

  Result<Next> next() override {
    if (known_ != tokens_) MF_RETURN_IF_ERROR(on_mask_(tokens_));
    known_ = tokens_;
    const bool is_over = tokens_ == length_;
    std::ranges::fill(words_, is_over ? 0 : ~uint32_t{0});
    return Next{.mask = {words_}, .may_end = is_over, .must_end = is_over};
  }
  Status consume(TokenId /*token*/) override {
    ++tokens_;
    return {};
  }
  Status rollback(int64_t count) override {
    tokens_ -= count;
    return {};
  }
  void stop() override { on_stop_(); }

 private:
  const OnMask on_mask_;
  const std::function<void()> on_stop_;
  const int64_t length_;
  int64_t tokens_ = 0;
  int64_t known_ = -1;
  std::vector<uint32_t> words_ = std::vector<uint32_t>(64);
};

class FreeConstraint final : public Constraint {
 public:
  explicit FreeConstraint(
      OnMask on_mask, std::function<void()> on_stop = [] {}, int64_t length = -1)
      : on_mask_(std::move(on_mask)), on_stop_(std::move(on_stop)), length_(length) {}
  Result<std::unique_ptr<Matcher>> start() const override {
    return std::unique_ptr<Matcher>(std::make_unique<FreeMatcher>(on_mask_, on_stop_, length_));
  }

 private:
  const OnMask on_mask_;
  const std::function<void()> on_stop_;
  const int64_t length_;
};

class SchedulerMasksTest : public SchedulerTest {
 protected:
  SchedulerMasksTest() { write_attention_model(); }

  static TextRequest request(TokenId first, int64_t tokens_max) {
    return {.prompt = {first, 2, 3, 4}, .sampler = {.seed = 1}, .tokens_max = tokens_max};
  }
  /// The same, held to a grammar that allows all and stands at the gate before one of its masks.
  static TextRequest gated(TextRequest request, Gate& gate, int64_t at) {
    request.constraint = std::make_shared<FreeConstraint>([&gate, at](int64_t tokens) -> Status {
      if (tokens == at) gate.pass();
      return {};
    });
    return request;
  }
};

TEST_F(SchedulerMasksTest, AHeldTextIsTheSameAsAFreeOneWhereAllIsAllowed) {
  TextRequest held = request(1, 30);
  held.sampler.temperature = 0.8F;
  const std::vector<TokenId> expected = alone(held);
  held.constraint = std::make_shared<FreeConstraint>([](int64_t) { return Status(); });
  EXPECT_EQ(alone(held), expected);
  held.constraint = std::make_shared<FreeConstraint>([](int64_t) { return Status(); }, [] {}, 11);
  const auto ended = run(*begin(open_tiny()), held);
  EXPECT_EQ(ended->statistics.reason, FinishReason::kStopToken);
  EXPECT_TRUE(ended->stop_tokens.empty());
  EXPECT_EQ(ended->tokens, std::vector<TokenId>(expected.begin(), expected.begin() + 11));
}

TEST_F(SchedulerMasksTest, WhileAMaskIsComputedOtherTextsGoOn) {
  for (const int64_t at : {0, 1, 7}) {
    Gate gate;
    const auto scheduler = begin(open_tiny());
    const auto slow = std::make_shared<Collector>();
    submit(*scheduler, gated(request(1, 12), gate, at), slow);
    gate.wait_for_arrival();
    EXPECT_EQ(run(*scheduler, request(5, 40))->tokens, alone(request(5, 40)));
    // Held texts too.
    TextRequest quick = request(6, 40);
    quick.constraint = std::make_shared<FreeConstraint>([](int64_t) { return Status(); });
    EXPECT_EQ(run(*scheduler, quick)->tokens, alone(request(6, 40)));
    gate.open();
    slow->wait();
    EXPECT_EQ(slow->tokens, alone(request(1, 12))) << at;
  }
}

TEST_F(SchedulerMasksTest, ATextThatIsCancelledStopsItsMask) {
  Gate gate;
  std::atomic<int> stops = 0;
  TextRequest held = request(1, 12);
  held.constraint = std::make_shared<FreeConstraint>(
      [&](int64_t tokens) -> Status {
        if (tokens == 3) gate.pass();
        return stops > 0 ? make_error(ErrorCode::kUnsupported, "stopped") : Status();
      },
      [&] {
        if (stops++ == 0) gate.open();
      });
  const auto scheduler = begin(open_tiny());
  const auto receiver = std::make_shared<Collector>();
  const TextRequestId id = submit(*scheduler, held, receiver);
  gate.wait_for_arrival();
  scheduler->cancel(id);
  receiver->wait();
  EXPECT_EQ(receiver->statistics.reason, FinishReason::kCancelled);
  EXPECT_EQ(receiver->tokens.size(), 2u);  // the third was drawn, and is told with its mask alone
  EXPECT_GT(stops, 0);
}

TEST_F(SchedulerMasksTest, TheEndOfTheSchedulerStopsMasks) {
  Gate gate;
  std::atomic<int> stops = 0;
  TextRequest held = request(1, 12);
  held.constraint = std::make_shared<FreeConstraint>(
      [&](int64_t tokens) -> Status {
        if (tokens == 3) gate.pass();
        return {};
      },
      [&] {
        if (stops++ == 0) gate.open();
      });
  const auto receiver = std::make_shared<Collector>();
  auto scheduler = begin(open_tiny());
  submit(*scheduler, held, receiver);
  gate.wait_for_arrival();
  scheduler.reset();
  receiver->wait();
  EXPECT_EQ(receiver->statistics.reason, FinishReason::kCancelled);
}

TEST_F(SchedulerMasksTest, AMaskThatFailsEndsItsTextAlone) {
  for (const int64_t at : {0, 5}) {
    TextRequest held = request(1, 12);
    held.constraint = std::make_shared<FreeConstraint>([at](int64_t tokens) {
      return tokens == at ? make_error(ErrorCode::kUnsupported, "grammar: too complex") : Status();
    });
    const auto scheduler = begin(open_tiny());
    const auto failed = std::make_shared<Collector>();
    const auto other = std::make_shared<Collector>();
    submit(*scheduler, held, failed);
    submit(*scheduler, request(5, 40), other);
    failed->wait();
    other->wait();
    ASSERT_FALSE(failed->error.ok());
    EXPECT_EQ(failed->error.error().code(), ErrorCode::kUnsupported);
    EXPECT_EQ(failed->tokens.size(), static_cast<size_t>(std::max<int64_t>(0, at - 1)));
    EXPECT_TRUE(other->error.ok());
    EXPECT_EQ(other->tokens, alone(request(5, 40)));
    EXPECT_EQ(scheduler->counters().failed, 1u);
  }
}

// Its first token, or one that is drawn and not told, waits while another text has its room.
TEST_F(SchedulerMasksTest, ATextThatGaveWayGoesOnWithTheSameTokens) {
  for (const int64_t at : {0, 1, 4}) {
    Gate gate;
    const auto scheduler = begin(open_tiny(), {.active_max = 1, .patience = milliseconds(1)});
    const auto slow = std::make_shared<Collector>();
    submit(*scheduler, gated(request(1, 12), gate, at), slow);
    gate.wait_for_arrival();
    EXPECT_EQ(run(*scheduler, request(5, 40))->tokens.size(), 40u);
    gate.open();
    slow->wait();
    EXPECT_TRUE(slow->error.ok());
    EXPECT_EQ(slow->tokens, alone(request(1, 12))) << at;
    EXPECT_GE(scheduler->counters().preemptions, 1u);
  }
}

TEST_F(SchedulerMasksTest, ParkedAndForcedTextsStayHeld) {
  TextRequest held = request(1, 12);
  std::vector<TokenId> expected = alone(held);
  held.constraint = std::make_shared<FreeConstraint>([](int64_t) { return Status(); });
  const auto scheduler = begin(open_tiny());
  TextRequestId id = 0;
  std::promise<void> parked;
  const auto receiver = std::make_shared<Collector>([&](const DrawnToken&, size_t before) {
    if (before != 4) return Verdict{};
    parked.set_value();
    return Verdict{.park = true, .forced = {9, 8}};
  });
  id = submit(*scheduler, held, receiver);
  parked.get_future().wait();
  scheduler->resume(id);
  receiver->wait();
  ASSERT_EQ(receiver->tokens.size(), 12u);
  EXPECT_TRUE(std::equal(expected.begin(), expected.begin() + 5, receiver->tokens.begin()));
  EXPECT_EQ(receiver->tokens[5], 9);
  EXPECT_EQ(receiver->tokens[6], 8);
}

TEST(MaskPace, OneSlowMaskMakesATextSlowAndSeveralQuickOnesQuick) {
  MaskPace pace;
  EXPECT_EQ(pace.kind(), MaskPace::Kind::kNew);
  pace.note(microseconds(100));
  EXPECT_EQ(pace.kind(), MaskPace::Kind::kQuick);
  pace.note(microseconds(30'000));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(pace.kind(), MaskPace::Kind::kSlow);
    pace.note(microseconds(100));
  }
  EXPECT_EQ(pace.kind(), MaskPace::Kind::kSlow);
  pace.note(microseconds(100));
  EXPECT_EQ(pace.kind(), MaskPace::Kind::kQuick);
}

class ConstrainedDrafts : public SchedulerTest, public ::testing::WithParamInterface<bool> {
 protected:
  ConstrainedDrafts() {
    if (GetParam()) write_attention_model();
  }
  static std::vector<TextRequest> requests(TokenId poison = -1) {
    std::vector<TextRequest> all;
    for (TokenId first = 1; first <= 3; ++first) {
      all.push_back({.prompt = {first, 2, 3, 4},
                     .sampler = {.temperature = first == 1 ? 0.0f : 0.9f,
                                 .logit_bias = {{.token = poison, .bias = -1000.0f}},
                                 .seed = static_cast<uint64_t>(first)},
                     .tokens_max = 60,
                     .top_logprobs = 0});
      if (poison < 0) all.back().sampler.logit_bias = {};
      if (first < 3) all.back().constraint = std::make_shared<ThirdConstraint>(poison);
    }
    return all;
  }
  using Texts = std::vector<std::shared_ptr<Collector>>;
  static Texts write(const std::shared_ptr<OpenModel>& model,
                     const std::vector<TextRequest>& requests) {
    const auto scheduler = begin(model);
    Texts texts;
    for (const TextRequest& request : requests) {
      texts.push_back(std::make_shared<Collector>());
      submit(*scheduler, request, texts.back());
    }
    for (const auto& text : texts) text->wait();
    return texts;
  }
  /// The rest of the text that begins so, with every `wrong`-th token replaced.
  static DraftOptions drafts_of(const std::vector<TextRequest>& requests, const Texts& written,
                                int wrong, TokenId with) {
    std::vector<std::vector<TokenId>> known;
    for (size_t i = 0; i < requests.size(); ++i) {
      known.push_back(joined(requests[i].prompt, written[i]->tokens));
    }
    const auto source = [known, wrong, with, calls = 0](std::span<const TokenId> text,
                                                        int64_t tokens_max) mutable {
      std::vector<TokenId> drafts;
      for (const auto& one : known) {
        if (one.size() < text.size() || !std::equal(text.begin(), text.end(), one.begin()))
          continue;
        for (size_t i = text.size(); i < one.size() && std::ssize(drafts) < tokens_max; ++i) {
          drafts.push_back(++calls % wrong == 0 ? with : one[i]);
        }
      }
      return drafts;
    };
    return {.mode = DraftMode::kOn, .make_source = source_of(source)};
  }
  static void expect_same(const Texts& with, const Texts& without) {
    for (size_t i = 0; i < with.size(); ++i) {
      EXPECT_TRUE(with[i]->error.ok()) << i << " " << with[i]->error.error().to_string();
      EXPECT_EQ(with[i]->tokens, without[i]->tokens) << i;
      EXPECT_EQ(with[i]->logprobs, without[i]->logprobs) << i;
    }
  }
};

TEST_P(ConstrainedDrafts, KeepTheText) {
  const auto all = requests();
  const auto model = open_tiny();
  const Texts without = write(model, all);
  for (const int wrong : {1000, 5, 2}) {
    model->drafts = drafts_of(all, without, wrong, 7);
    const Texts with = write(model, all);
    expect_same(with, without);
    for (const auto& text : with) EXPECT_GT(text->statistics.drafts.accepted, 0) << wrong;
  }
  model->drafts = {.mode = DraftMode::kOn, .match_min = 1};
  expect_same(write(model, all), without);
  model->drafts = {.mode = DraftMode::kAuto, .match_min = 1};
  expect_same(write(model, all), without);
  const auto small = std::make_shared<DraftModel>(open_tiny(), 0.0f, kVocab);
  model->drafts = {.mode = DraftMode::kOn, .make_source = [&] { return small->make_source(); }};
  expect_same(write(model, all), without);
}

// A draft that is allowed and never drawn: what the matcher does behind it is of no concern.
TEST_P(ConstrainedDrafts, MatchersMayFailBehindAWrongOne) {
  const auto all = requests(5);
  const auto model = open_tiny();
  const Texts without = write(model, all);
  model->drafts = drafts_of(all, without, 4, 5);
  const Texts with = write(model, all);
  expect_same(with, without);
  EXPECT_GT(with.front()->statistics.drafts.accepted, 0);
}

INSTANTIATE_TEST_SUITE_P(All, ConstrainedDrafts, ::testing::Bool(), [](const auto& forgets) {
  return forgets.param ? "Attention" : "FixedStates";
});

}  // namespace
}  // namespace moeflux
