// Texts of golden models with and without drafts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chat/drafts/draft_model.h"
#include "chat/drafts/draft_test_util.h"
#include "chat/session.h"
#include "schedule/scheduler.h"
#include "schedule/scheduler_test_util.h"
#include "tests/support/golden_families.h"

namespace moeflux::testing {

using Tokens = std::vector<TokenId>;

constexpr int64_t kContext = 96;

/// A text with what was told of it.
struct Written {
  Tokens tokens;
  std::vector<float> logprobs;
  friend bool operator==(const Written&, const Written&) = default;
};

inline std::shared_ptr<OpenModel> open_golden(const std::string& folder, uint64_t cache,
                                              int64_t chunk, DraftOptions drafts = {}) {
  auto model = open_model(folder, {.device = {.threads = 1, .precision = "f32"},
                                   .engine = {.context_length = kContext,
                                              .expert_cache_bytes = cache,
                                              // Direct reads wait for the drive 1,400 times a draw.
                                              .expert_io = IoMode::kPread,
                                              .reader_threads = 1,
                                              .prefill_chunk = chunk,
                                              .step_sequences = 4},
                                   .drafts = std::move(drafts)});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().to_string());
  return model.ok() ? std::move(model).value() : nullptr;
}

/// Adds the engine's steps to `steps`, and drafts to `drafts`.
inline std::vector<Written> write(const std::shared_ptr<OpenModel>& model,
                                  const std::vector<TextRequest>& requests, uint64_t& steps,
                                  const SchedulerOptions& options = {},
                                  DraftCounts* drafts = nullptr) {
  auto scheduler = Scheduler::start(model, options);
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

inline std::vector<TextRequest> draw_requests(std::mt19937& random, int64_t vocab_size) {
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

}  // namespace moeflux::testing
