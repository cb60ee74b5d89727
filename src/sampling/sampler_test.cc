// The sampler's steps one by one, its errors, and that a seed means literal tokens.
#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "sampling/philox.h"

namespace moeflux {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Everything off but the draw itself.
SamplerOptions plain() { return {.temperature = 1.0f, .top_k = 0, .top_p = 1.0f, .min_p = 0.0f}; }

Sampler make(const SamplerOptions& options) {
  Result<Sampler> sampler = Sampler::create(options);
  EXPECT_TRUE(sampler.ok());
  return std::move(sampler).value();
}

TokenId pick(Sampler* sampler, const std::vector<float>& logits) {
  const Result<TokenId> token = sampler->sample(logits);
  EXPECT_TRUE(token.ok()) << token.error().to_string();
  return token.ok() ? *token : -1;
}

std::map<TokenId, int> histogram(const SamplerOptions& options, const std::vector<float>& logits,
                                 int draws) {
  Sampler sampler = make(options);
  std::map<TokenId, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[pick(&sampler, logits)];
  return counts;
}

std::set<TokenId> support(const SamplerOptions& options, const std::vector<float>& logits) {
  std::set<TokenId> ids;
  for (const auto& [id, count] : histogram(options, logits, 5000)) ids.insert(id);
  return ids;
}

std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

TEST(Philox, AgreesWithThePublishedVectors) {
  const std::array<uint32_t, 4> zeros = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  const std::array<uint32_t, 4> ones = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  const std::array<uint32_t, 4> pi = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), zeros);
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}), ones);
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            pi);
}

TEST(Sampler, ASeedMeansTheseTokens) {
  // Computed apart from this code, in Python, from the definition of the generator.
  std::vector<float> logits;
  for (int i = 0; i < 100; ++i) logits.push_back(static_cast<float>(i % 10));
  SamplerOptions options = plain();
  options.seed = 42;
  Sampler sampler = make(options);
  std::vector<TokenId> tokens;
  for (int i = 0; i < 12; ++i) tokens.push_back(pick(&sampler, logits));
  EXPECT_EQ(tokens, (std::vector<TokenId>{49, 38, 69, 69, 89, 29, 79, 47, 18, 39, 69, 49}));
  sampler.reset();
  EXPECT_EQ(pick(&sampler, logits), tokens[0]);
}

TEST(Sampler, OtherSeedsGiveOtherTokens) {
  const std::vector<float> logits(1000, 0.0f);
  SamplerOptions options = plain();
  std::set<std::vector<TokenId>> sequences;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, ~uint64_t{0}}) {
    options.seed = seed;
    Sampler sampler = make(options);
    std::vector<TokenId> tokens;
    for (int i = 0; i < 8; ++i) tokens.push_back(pick(&sampler, logits));
    sequences.insert(tokens);
  }
  EXPECT_EQ(sequences.size(), 4u);
}

TEST(Sampler, GreedyTakesTheLowestIdOfTheHighest) {
  SamplerOptions options;
  options.temperature = 0;
  Sampler sampler = make(options);
  EXPECT_EQ(pick(&sampler, {1, 5, -kInfinity, 5, 2}), 1);
  EXPECT_EQ(pick(&sampler, {-kInfinity, -7}), 1);
}

TEST(Sampler, DrawsInProportion) {
  const std::vector<double> p = {0.5, 0.25, 0.125, 0.125};
  const int draws = 40000;
  const auto counts = histogram(plain(), logs(p), draws);
  for (size_t i = 0; i < p.size(); ++i) {
    const double sigma = std::sqrt(draws * p[i] * (1 - p[i]));
    EXPECT_NEAR(counts.at(static_cast<TokenId>(i)), draws * p[i], 5 * sigma) << "token " << i;
  }
}

TEST(Sampler, TemperatureSharpensTheOdds) {
  SamplerOptions options = plain();
  options.temperature = 0.5f;  // squares the odds: 2:1 becomes 4:1
  const auto counts = histogram(options, logs({2.0 / 3, 1.0 / 3}), 40000);
  EXPECT_NEAR(counts.at(0), 32000, 5 * std::sqrt(40000 * 0.8 * 0.2));
}

TEST(Sampler, TopKKeepsTheHighestAndTiesGoToLowerIds) {
  SamplerOptions options = plain();
  options.top_k = 3;
  EXPECT_EQ(support(options, {0, 1, 1, 1, 2, 1}), (std::set<TokenId>{1, 2, 4}));
}

TEST(Sampler, TopPKeepsTheFewestThatReachP) {
  const auto logits = logs({0.1, 0.5, 0.15, 0.25});
  SamplerOptions options = plain();
  options.top_p = 0.4f;
  EXPECT_EQ(support(options, logits), (std::set<TokenId>{1}));
  options.top_p = 0.7f;
  EXPECT_EQ(support(options, logits), (std::set<TokenId>{1, 3}));
  options.top_p = 0.8f;
  EXPECT_EQ(support(options, logits), (std::set<TokenId>{1, 2, 3}));
  options.top_p = 0.0f;
  EXPECT_EQ(support(options, logits), (std::set<TokenId>{1}));
}

TEST(Sampler, TopPCountsWhatTopKLeft) {
  SamplerOptions options = plain();
  options.top_k = 2;     // 0.4 and 0.3, which are 0.57 and 0.43 of what is left
  options.top_p = 0.5f;  // of all, both would be needed
  EXPECT_EQ(support(options, logs({0.4, 0.3, 0.2, 0.1})), (std::set<TokenId>{0}));
}

TEST(Sampler, MinPComparesWithTheHighest) {
  SamplerOptions options = plain();
  options.min_p = 0.3f;
  EXPECT_EQ(support(options, logs({0.5, 0.2, 0.14, 0.16})), (std::set<TokenId>{0, 1, 3}));
  options.min_p = 1.0f;
  EXPECT_EQ(support(options, {1, 2, 2}), (std::set<TokenId>{1, 2}));
}

TEST(Sampler, TruncationLooksAtProbabilitiesBeforeTemperature) {
  SamplerOptions options = plain();
  options.temperature = 100.0f;
  options.top_p = 0.8f;
  EXPECT_EQ(support(options, logs({0.9, 0.1})), (std::set<TokenId>{0}));
}

TEST(Sampler, PenaltiesAreThoseOfLlamaCpp) {
  SamplerOptions options;
  options.temperature = 0;
  options.repeat_penalty = 2.0f;
  Sampler repeat = make(options);
  repeat.accept(0);
  repeat.accept(2);
  EXPECT_EQ(pick(&repeat, {4.0f, 2.1f, -1.0f}), 1);    // 4 / 2 < 2.1
  EXPECT_EQ(pick(&repeat, {-9.0f, -1.5f, -1.0f}), 1);  // -1 * 2 < -1.5

  options.repeat_penalty = 1.0f;
  options.presence_penalty = 0.5f;
  Sampler presence = make(options);
  for (int i = 0; i < 5; ++i) presence.accept(0);
  EXPECT_EQ(pick(&presence, {1.0f, 0.45f}), 0);
  EXPECT_EQ(pick(&presence, {1.0f, 0.55f}), 1);

  options.presence_penalty = 0.0f;
  options.frequency_penalty = 0.25f;
  Sampler frequency = make(options);
  for (int i = 0; i < 3; ++i) frequency.accept(0);
  EXPECT_EQ(pick(&frequency, {1.0f, 0.2f}), 0);
  EXPECT_EQ(pick(&frequency, {1.0f, 0.3f}), 1);
}

TEST(Sampler, PenaltiesForgetWhatLeftTheWindow) {
  SamplerOptions options;
  options.temperature = 0;
  options.presence_penalty = 1.0f;
  options.repeat_last_n = 2;
  Sampler sampler = make(options);
  const std::vector<float> logits = {1.0f, 0.5f, 0.4f, 0.3f};
  sampler.accept(0);
  sampler.accept(1);
  EXPECT_EQ(pick(&sampler, logits), 2);
  sampler.accept(2);  // pushes out 0
  EXPECT_EQ(pick(&sampler, logits), 0);
  sampler.accept(3);  // pushes out 1
  EXPECT_EQ(pick(&sampler, {-9.0f, 0.5f, 0.9f, 0.3f}), 1);
  sampler.accept(0);  // pushes out 2
  EXPECT_EQ(pick(&sampler, {-9.0f, 0.5f, 0.9f, 0.3f}), 2);
  sampler.accept(1);
  sampler.accept(2);
  sampler.accept(-1);
  sampler.accept(1 << 30);
  EXPECT_EQ(pick(&sampler, logits), 0);

  options.repeat_last_n = -1;
  Sampler all = make(options);
  for (TokenId id : {0, 1, 2, 2, 2, 2}) all.accept(id);
  EXPECT_EQ(pick(&all, logits), 3);

  options.repeat_last_n = 0;
  Sampler none = make(options);
  none.accept(0);
  EXPECT_EQ(pick(&none, logits), 0);
}

TEST(Sampler, BiasAddsAndBans) {
  SamplerOptions options;
  options.temperature = 0;
  options.logit_bias = {
      {.token = 0, .bias = -kInfinity}, {.token = 2, .bias = 1.5f}, {.token = 99, .bias = 5.0f}};
  Sampler sampler = make(options);
  EXPECT_EQ(pick(&sampler, {9.0f, 2.0f, 1.0f}), 2);
}

TEST(Sampler, IdsPastTheLimitAreNeverSampled) {
  SamplerOptions options = plain();
  options.vocab_limit = 2;
  EXPECT_EQ(support(options, {1, 1, 50, std::nanf("")}), (std::set<TokenId>{0, 1}));
  options.vocab_limit = 50;
  EXPECT_EQ(support(options, {0, 0, 0}), (std::set<TokenId>{0, 1, 2}));
}

TEST(Sampler, NoTokenFromLogitsThatAreNone) {
  for (const float temperature : {0.0f, 0.8f}) {
    SamplerOptions options;
    options.temperature = temperature;
    Sampler sampler = make(options);
    for (const std::vector<float>& logits : {std::vector<float>{},
                                             {1.0f, std::nanf("")},
                                             {1.0f, kInfinity},
                                             {-kInfinity, -kInfinity}}) {
      const Result<TokenId> token = sampler.sample(logits);
      ASSERT_FALSE(token.ok());
      EXPECT_EQ(token.error().code(), ErrorCode::kInvalidArgument);
    }
  }
}

TEST(Sampler, OverflowIsAnErrorNotAToken) {
  SamplerOptions options;
  options.logit_bias = {{.token = 1, .bias = 3e38f}};
  Sampler sampler = make(options);
  const Result<TokenId> token = sampler.sample(std::vector<float>{0.0f, 3e38f});
  ASSERT_FALSE(token.ok());
  EXPECT_NE(token.error().message().find("token 1"), std::string::npos);
}

TEST(Sampler, ExtremeLogitsStillGiveAToken) {
  Sampler sampler = make({.temperature = 1e-30f});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(pick(&sampler, {-3e38f, 3e38f, 2.9e38f}), 1);
}

TEST(SamplerOptions, ABadFieldIsNamed) {
  const auto message = [](const SamplerOptions& options) {
    const Status status = validate(options);
    return status.ok() ? std::string() : status.error().message();
  };
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(message({.min_p = 1.5f}), "min_p is 1.5, expected 0 to 1");
  EXPECT_NE(message({.temperature = std::nanf("")}).find("temperature"), std::string::npos);
  EXPECT_NE(message({.top_p = -0.1f}).find("top_p"), std::string::npos);
  EXPECT_NE(message({.repeat_penalty = 0.0f}).find("repeat_penalty"), std::string::npos);
  EXPECT_NE(message({.repeat_last_n = -2}).find("repeat_last_n"), std::string::npos);
  EXPECT_NE(message({.presence_penalty = kInfinity}).find("presence_penalty"), std::string::npos);
  EXPECT_NE(message({.frequency_penalty = kInfinity}).find("frequency_penalty"), std::string::npos);
  EXPECT_NE(message({.logit_bias = {{.token = -1, .bias = 0}}}).find("logit_bias"),
            std::string::npos);
  EXPECT_NE(message({.vocab_limit = -1}).find("vocab_limit"), std::string::npos);
}

/// The highest of the logits, best first.
std::vector<TokenLogit> best_of(const std::vector<float>& logits, int32_t count) {
  std::vector<TokenLogit> all;
  for (size_t i = 0; i < logits.size(); ++i) all.push_back({logits[i], static_cast<TokenId>(i)});
  const auto rank = [](const TokenLogit& c) { return std::isnan(c.logit) ? kInfinity : c.logit; };
  std::stable_sort(all.begin(), all.end(),
                   [&](const TokenLogit& a, const TokenLogit& b) { return rank(a) > rank(b); });
  all.resize(static_cast<size_t>(count));
  return all;
}

TEST(SampleBest, PicksWhatSamplePicks) {
  for (const SamplerOptions& options :
       {SamplerOptions{}, SamplerOptions{.temperature = 0.0f},
        SamplerOptions{.temperature = 2.0f, .top_k = 7, .top_p = 1.0f, .min_p = 0.0f},
        SamplerOptions{.temperature = 0.1f, .top_k = 63, .top_p = 0.5f, .seed = 5},
        SamplerOptions{.temperature = 0.0f, .logit_bias = {{3, -kInfinity}, {60, -2.0f}}},
        SamplerOptions{.temperature = 1.5f, .top_k = 5, .logit_bias = {{7, -1.0f}, {9, -9.0f}}}}) {
    Sampler whole = make(options);
    Sampler few = make(options);
    for (uint64_t round = 0; round < 200; ++round) {
      std::vector<float> logits;
      for (uint64_t i = 0; i < 64; ++i) {
        logits.push_back(static_cast<float>(std::round(40.0 * uniform_draw(round, i)) / 4.0));
      }
      const int32_t needed = few.best_needed(64);
      ASSERT_GT(needed, 0);
      const Result<TokenId> token = few.sample_best(best_of(logits, needed), 64);
      ASSERT_TRUE(token.ok());
      EXPECT_EQ(*token, pick(&whole, logits)) << "top_k " << options.top_k << ", round " << round;
      EXPECT_EQ(few.progress().draws_count, whole.progress().draws_count);
    }
  }
}

TEST(SampleBest, FailsAsSampleFails) {
  const float no_number = std::nanf("");
  for (const std::vector<float>& logits : {std::vector<float>{1, 2, no_number, kInfinity, 3},
                                           {1, 2, 3, kInfinity, no_number},
                                           std::vector<float>(5, -kInfinity)}) {
    Sampler sampler = make({.top_k = 2});
    const Result<TokenId> whole = sampler.sample(logits);
    const Result<TokenId> few = sampler.sample_best(best_of(logits, 2), 5);
    ASSERT_FALSE(whole.ok());
    ASSERT_FALSE(few.ok());
    EXPECT_EQ(few.error().to_string(), whole.error().to_string());
  }
}

TEST(SampleBest, IsNotEnoughWhereOtherLogitsCount) {
  EXPECT_EQ(make({.top_k = 40}).best_needed(41), 40);
  EXPECT_EQ(make({.temperature = 0.0f, .top_k = 0}).best_needed(2), 1);
  EXPECT_EQ(make({.top_k = 40}).best_needed(40), 0);
  EXPECT_EQ(make({.top_k = 0}).best_needed(41), 0);
  EXPECT_EQ(make({.top_k = 40, .repeat_penalty = 1.1f}).best_needed(41), 0);
  EXPECT_EQ(make({.top_k = 40, .logit_bias = {{3, 1.0f}}}).best_needed(41), 0);
  EXPECT_EQ(make({.top_k = 40, .logit_bias = {{3, -1.0f}, {4, 0.5f}}}).best_needed(50), 0);
  EXPECT_EQ(make({.top_k = 40, .logit_bias = {{3, -1.0f}}}).best_needed(41), 0);
  EXPECT_EQ(make({.top_k = 40, .logit_bias = {{3, -1.0f}}}).best_needed(42), 41);
}

TEST(TokenMask, AllowsWhatItHasABitFor) {
  const std::vector<uint32_t> words = {0x80000001u, 0x2u};
  const TokenMask mask{words};
  std::vector<TokenId> allowed;
  for (TokenId id = -2; id < 70; ++id) {
    if (mask.allows(id)) allowed.push_back(id);
  }
  EXPECT_EQ(allowed, (std::vector<TokenId>{0, 31, 33}));
}

TEST(Sampler, WhatTheMaskForbidsIsAsIfItWereNotThere) {
  const std::vector<uint32_t> words = {0b1110};
  const TokenMask mask{words};
  // The best token is forbidden; steps look at the probabilities of the others.
  const std::vector<float> logits = logs({0.9, 0.06, 0.03, 0.01});
  const std::vector<SamplerOptions> chains = {
      {.temperature = 0},
      {.temperature = 1, .top_k = 1, .top_p = 1, .min_p = 0},
      {.temperature = 1, .top_k = 0, .top_p = 0.5f, .min_p = 0},
      {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0.7f}};
  for (const SamplerOptions& options : chains) {
    Sampler sampler = make(options);
    EXPECT_EQ(sampler.sample(logits, &mask).value(), 1) << options.top_k;
  }
  SamplerOptions free = plain();
  Sampler masked = make(free);
  free.logit_bias = {{0, -kInfinity}};
  Sampler biased = make(free);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(masked.sample(logits, &mask).value(), biased.sample(logits).value());
  }
}

TEST(Sampler, AMaskThatLeavesNothingIsAnError) {
  const std::vector<uint32_t> words = {0};
  const TokenMask mask{words};
  Sampler sampler = make(plain());
  EXPECT_EQ(sampler.sample(logs({0.5, 0.5}), &mask).error().code(), ErrorCode::kInvalidArgument);
}

TEST(Confidence, IsTheBestTokensPartAndNothingWhereALogitIsNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(confidence_of(std::vector<TokenLogit>{{3.0f, 5}}), 1.0f);
  EXPECT_EQ(confidence_of(std::vector<TokenLogit>{{3.0f, 5}, {3.0f, 7}}), 0.5f);
  EXPECT_EQ(confidence_of(std::vector<TokenLogit>{{3.0f, 5}, {-infinity, 7}}), 1.0f);
  EXPECT_EQ(confidence_of(std::vector<TokenLogit>{{nan, 5}, {3.0f, 7}}), 0.0f);
  EXPECT_EQ(confidence_of(std::vector<TokenLogit>{{3.0f, 5}, {nan, 7}}), 0.0f);
  EXPECT_EQ(confidence_of(std::vector<TokenLogit>{{infinity, 5}, {3.0f, 7}}), 0.0f);
}

}  // namespace
}  // namespace moeflux
