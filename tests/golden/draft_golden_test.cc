// Texts with drafts are the texts without, token for token and with the same log-probabilities:
// of every family, greedy and sampled, in company, from drafts that are right, wrong or too long.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "chat/drafts/draft_model.h"
#include "chat/drafts/draft_test_util.h"
#include "chat/session.h"
#include "schedule/scheduler.h"
#include "schedule/scheduler_test_util.h"
#include "tests/support/golden_families.h"
#include "tests/support/golden_file.h"
#include "tests/support/soak.h"

namespace moeflux::testing {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int64_t kContext = 96;
constexpr int kRounds = 4;  // of each family
constexpr const char* kOther = "qwen3_moe";

/// A text with what was told of it.
struct Written {
  Tokens tokens;
  std::vector<float> logprobs;
  friend bool operator==(const Written&, const Written&) = default;
};

std::shared_ptr<OpenModel> open(const std::string& folder, uint64_t cache, int64_t chunk,
                                DraftOptions drafts = {}) {
  auto model = open_model(folder, {.device = {.threads = 1, .precision = "f32"},
                                   .engine = {.context_length = kContext,
                                              .expert_cache_bytes = cache,
                                              .reader_threads = 1,
                                              .prefill_chunk = chunk,
                                              .step_sequences = 4},
                                   .drafts = std::move(drafts)});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().to_string());
  return model.ok() ? std::move(model).value() : nullptr;
}

/// Adds the engine's steps to `steps`.
std::vector<Written> write(const std::shared_ptr<OpenModel>& model,
                           const std::vector<TextRequest>& requests, uint64_t& steps,
                           DraftCounts* drafts = nullptr) {
  auto scheduler = Scheduler::start(model, {});
  EXPECT_TRUE(scheduler.ok());
  std::vector<std::shared_ptr<Collector>> texts;
  for (const TextRequest& request : requests) {
    texts.push_back(std::make_shared<Collector>());
    const auto id = (*scheduler)->submit(request, texts.back());
    EXPECT_TRUE(id.ok()) << (id.ok() ? "" : id.error().to_string());
  }
  std::vector<Written> written;
  for (const auto& text : texts) {
    text->wait();
    EXPECT_TRUE(text->error.ok()) << (text->error.ok() ? "" : text->error.error().to_string());
    written.push_back({text->tokens, text->logprobs});
  }
  steps += (*scheduler)->counters().steps;
  if (drafts != nullptr) *drafts += (*scheduler)->counters().drafts;
  return written;
}

/// Drafts what was written without drafts, some tokens of it replaced.
class Oracle {
 public:
  Oracle(const std::vector<TextRequest>& requests, const std::vector<Written>& written,
         double wrong, uint64_t seed)
      : wrong_(wrong), random_(static_cast<unsigned>(seed)) {
    for (size_t i = 0; i < requests.size(); ++i) {
      texts_.push_back(requests[i].prompt);
      texts_.back().insert(texts_.back().end(), written[i].tokens.begin(), written[i].tokens.end());
    }
  }
  Tokens operator()(std::span<const TokenId> text, int64_t tokens_max) {
    for (const Tokens& known : texts_) {
      if (known.size() <= text.size() ||
          !std::ranges::equal(text, std::span(known).first(text.size()))) {
        continue;
      }
      Tokens drafts(known.begin() + static_cast<ptrdiff_t>(text.size()), known.end());
      drafts.resize(std::min<size_t>(drafts.size(), random_() % 9));
      while (random_() % 4 == 0) drafts.push_back(static_cast<TokenId>(random_() % 8));
      if (drafts.size() > static_cast<size_t>(tokens_max)) {
        drafts.resize(static_cast<size_t>(tokens_max));
      }
      for (TokenId& token : drafts) {
        if (std::uniform_real_distribution<>()(random_) < wrong_) token = (token + 1) % 8;
      }
      return drafts;
    }
    ADD_FAILURE() << "a text of " << text.size() << " tokens that was not written without drafts";
    return {};
  }

 private:
  double wrong_;
  std::mt19937 random_;
  std::vector<Tokens> texts_;
};

std::vector<TextRequest> draw_requests(std::mt19937& random, int64_t vocab_size) {
  std::vector<TextRequest> requests(1 + random() % 4);
  for (TextRequest& request : requests) {
    request.prompt.resize(1 + random() % 30);
    for (TokenId& token : request.prompt) {
      token = static_cast<TokenId>(random() % static_cast<unsigned>(vocab_size));
    }
    request.tokens_max = 1 + static_cast<int64_t>(random() % 40);
    request.reuse = random() % 2 == 0;
    request.top_logprobs = random() % 3 == 0 ? 0 : -1;
    SamplerOptions& sampler = request.sampler;
    sampler.seed = random();
    sampler.temperature = random() % 2 == 0 ? 0.0f : 0.7f;
    if (random() % 3 == 0) sampler.top_k = 3;
    if (random() % 3 == 0) sampler.repeat_penalty = 1.3f;
    if (random() % 4 == 0) sampler.dry_multiplier = 0.8f;
    if (random() % 4 == 0) sampler.mirostat = 2;
  }
  return requests;
}

class DraftGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(DraftGolden, TextWithDraftsIsTheTextWithout) {
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(GetParam())));
  const uint64_t caches[] = {0, uint64_t{1} << 16, uint64_t{1} << 30};
  const int64_t chunks[] = {0, 7, 33};
  const auto model = open(golden_folder(GetParam()), caches[random() % 3], chunks[random() % 3]);
  ASSERT_NE(model, nullptr);
  uint64_t steps = 0;
  uint64_t steps_with_drafts = 0;
  uint64_t ignored = 0;  // repetitions are rare, and requests join steps as they arrive
  for (Soak soak(kRounds); soak.next();) {
    const int round = soak.round();
    const auto requests = draw_requests(random, model->engine->spec().vocab_size);
    model->drafts = {};
    const std::vector<Written> expected = write(model, requests, steps);
    const double wrong = round % 2 == 0 ? 0.05 : 0.4;
    model->drafts = {.mode = round % 4 == 3 ? DraftMode::kAuto : DraftMode::kOn,
                     .tokens_max = 1 + static_cast<int64_t>(random() % 16),
                     .make_source = source_of(Oracle(requests, expected, wrong, random()))};
    EXPECT_EQ(write(model, requests, steps_with_drafts), expected) << "round " << round;
    model->drafts = {.mode = DraftMode::kOn, .match_min = 1};
    EXPECT_EQ(write(model, requests, ignored), expected) << "repetitions, round " << round;
  }
  // Most drafts of the oracle are right.
  EXPECT_LT(steps_with_drafts, steps);
}

/// Two models draft: this one with another cache, and one of another family, which is nearly always
/// wrong.
TEST_P(DraftGolden, TextWithAModelThatDraftsIsTheTextWithout) {
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(GetParam())) + 1);
  const auto model = open(golden_folder(GetParam()), uint64_t{1} << 16, 7);
  const auto itself = open(golden_folder(GetParam()), uint64_t{1} << 30, 0);
  const auto other = open(golden_folder(kOther), uint64_t{1} << 30, 0);
  ASSERT_TRUE(model != nullptr && itself != nullptr && other != nullptr);
  const int64_t vocab_size = model->engine->spec().vocab_size;
  uint64_t steps = 0;
  uint64_t steps_with_drafts = 0;
  for (Soak soak(1); soak.next();) {
    const auto requests = draw_requests(random, vocab_size);
    model->drafts = {};
    const std::vector<Written> expected = write(model, requests, steps);
    uint64_t ignored = 0;
    for (const auto& small : {itself, other}) {
      const auto drafting = std::make_shared<DraftModel>(small, 0.0f, vocab_size);
      model->drafts = {.mode = DraftMode::kOn,
                       .tokens_max = 1 + static_cast<int64_t>(random() % 8),
                       .make_source = [&] { return drafting->make_source(); }};
      EXPECT_EQ(write(model, requests, small == itself ? steps_with_drafts : ignored), expected)
          << small->directory;
    }
  }
  EXPECT_LE(steps_with_drafts, steps);
}

class MtpDraftGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(MtpDraftGolden, TextWithTheModelsOwnDraftsIsTheTextWithout) {
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(GetParam())));
  const std::string folder = tests_directory() + "/golden/mtp/" + GetParam();
  const uint64_t caches[] = {0, uint64_t{1} << 16, uint64_t{1} << 30};
  const int64_t chunks[] = {0, 7, 33};
  const auto plain = open(folder, caches[random() % 3], chunks[random() % 3]);
  ASSERT_NE(plain, nullptr);
  EXPECT_EQ(plain->engine->spec().draft_layers, 0);
  uint64_t steps = 0;
  DraftCounts drafts;
  for (Soak soak(kRounds); soak.next();) {
    const auto requests = draw_requests(random, plain->engine->spec().vocab_size);
    const std::vector<Written> expected = write(plain, requests, steps);
    const auto model = open(folder, caches[random() % 3], chunks[random() % 3],
                            {.mode = soak.round() % 4 == 3 ? DraftMode::kAuto : DraftMode::kOn,
                             .match_min = soak.round() % 2 == 0 ? 1 : 64,
                             .mtp_tokens = 1 + static_cast<int64_t>(random() % 3)});
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->engine->spec().draft_layers, 1);
    EXPECT_EQ(write(model, requests, steps, &drafts), expected) << "round " << soak.round();
  }
  EXPECT_GT(drafts.drafted, 0);
}

INSTANTIATE_TEST_SUITE_P(All, MtpDraftGolden, ::testing::ValuesIn(mtp_families()),
                         [](const auto& family) { return family.param; });

INSTANTIATE_TEST_SUITE_P(All, DraftGolden, ::testing::ValuesIn(golden_families()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace moeflux::testing
