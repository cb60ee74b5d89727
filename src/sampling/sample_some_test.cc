// Samplers that are given a part of a row pick what they would of all of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "sampling/philox.h"
#include "sampling/sampler.h"

namespace moeflux {
namespace {

constexpr float kEndless = std::numeric_limits<float>::infinity();

Sampler sampler_of(const SamplerOptions& options) {
  Result<Sampler> sampler = Sampler::create(options);
  EXPECT_TRUE(sampler.ok());
  return std::move(sampler).value();
}

/// The part of a row that a device selects as some_needed() says.
std::vector<TokenLogit> some_of(const std::vector<float>& logits, int32_t count,
                                const Sampler::SomeNeeded& needed, const TokenMask* mask) {
  std::vector<TokenLogit> best;
  std::vector<TokenLogit> apart;
  std::vector<TokenLogit> all;
  for (TokenId id = 0; id < count; ++id) all.push_back({logits[static_cast<size_t>(id)], id});
  const auto rank = [](const TokenLogit& c) { return std::isnan(c.logit) ? kEndless : c.logit; };
  std::ranges::stable_sort(all, std::greater(), rank);
  for (const TokenLogit& c : all) {
    const bool is_apart = std::ranges::count(needed.apart, c.id) > 0;
    const bool is_allowed = mask == nullptr || mask->allows(c.id);
    const bool is_broken = !(c.logit < kEndless);
    if (is_apart && (is_allowed || is_broken)) apart.push_back(c);
    const bool is_one = (is_allowed && !is_apart) || is_broken;
    if (is_one && std::ssize(best) < needed.best) best.push_back(c);
  }
  best.insert(best.end(), apart.begin(), apart.end());
  return best;
}

/// Numbers that a test draws, the same each time.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : seed_(seed) {}
  /// From 0 to end - 1.
  int below(int end) { return static_cast<int>(uniform_draw(seed_, next_++) * end); }
  bool one_in(int n) { return below(n) == 0; }
  /// Few different ones, so that many are equal.
  float logit() {
    if (one_in(40)) return -kEndless;
    return static_cast<float>(below(41) - 20) / 4.0f;
  }

 private:
  const uint64_t seed_;
  uint64_t next_ = 0;
};

SamplerOptions random_options(Numbers& numbers, int count) {
  SamplerOptions options{.temperature = numbers.one_in(3) ? 0.0f : 0.9f,
                         .top_k = 1 + numbers.below(12),
                         .top_p = numbers.one_in(2) ? 1.0f : 0.9f,
                         .seed = 9};
  if (numbers.one_in(2)) {
    options.repeat_penalty = numbers.one_in(2) ? 1.3f : 0.8f;
    options.repeat_last_n = 1 + numbers.below(8);
    options.frequency_penalty = numbers.one_in(2) ? 0.0f : 0.5f;
    options.presence_penalty = numbers.one_in(2) ? 0.0f : -0.25f;
  }
  for (int i = numbers.below(4); i > 0; --i) {
    const float bias = numbers.one_in(5) ? -kEndless : static_cast<float>(numbers.below(9) - 4);
    options.logit_bias.push_back({numbers.below(count + 2), bias});
  }
  if (numbers.one_in(4)) options.vocab_limit = 1 + numbers.below(count);
  if (numbers.one_in(8)) options.typical_p = 0.8f;
  if (numbers.one_in(8)) options.xtc_probability = 0.5f;
  return options;
}

TEST(SampleSome, PicksWhatSamplePicksUnderAnyMaskPenaltyAndBias) {
  int enough = 0;
  for (uint64_t round = 0; round < 4000; ++round) {
    Numbers numbers(round);
    const int width = 1 + numbers.below(70);
    const SamplerOptions options = random_options(numbers, width);
    const int32_t count = options.vocab_limit > 0 ? std::min(options.vocab_limit, width) : width;
    Sampler whole = sampler_of(options);
    Sampler some = sampler_of(options);
    for (int i = 0; i < 5; ++i) {
      std::vector<float> logits;
      for (int id = 0; id < width; ++id) logits.push_back(numbers.logit());
      if (numbers.one_in(50)) logits[static_cast<size_t>(numbers.below(width))] = kEndless;
      if (numbers.one_in(50)) logits[static_cast<size_t>(numbers.below(width))] = std::nanf("");
      std::vector<uint32_t> words(static_cast<size_t>(width + 31) / 32);
      const int share = 1 + numbers.below(6);  // of the tokens, as one allowed in so many
      for (int id = 0; id < width && !numbers.one_in(60); ++id) {
        if (numbers.one_in(share)) words[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
      }
      const TokenMask mask{words};
      const TokenMask* used = numbers.one_in(3) ? nullptr : &mask;
      const Result<TokenId> expected = whole.sample(logits, used);
      const Sampler::SomeNeeded needed = some.some_needed(count);
      if (needed.best == 0) break;
      const Result<TokenId> got =
          some.sample_some(some_of(logits, count, needed, used), count, used);
      ++enough;
      ASSERT_EQ(got.ok(), expected.ok()) << "round " << round;
      if (!got.ok()) {
        EXPECT_EQ(got.error().to_string(), expected.error().to_string()) << "round " << round;
        continue;
      }
      ASSERT_EQ(*got, *expected) << "round " << round;
      EXPECT_EQ(some.progress().draws_count, whole.progress().draws_count);
      some.accept(*got);
      whole.accept(*got);
    }
  }
  EXPECT_GT(enough, 10'000);
}

TEST(SampleSome, IsNotEnoughWhereOtherLogitsCount) {
  EXPECT_EQ(sampler_of({.top_k = 40}).some_needed(100).best,
            41);  // one more tells that there are more
  EXPECT_EQ(sampler_of({.top_k = 40}).some_needed(7).best, 7);
  EXPECT_EQ(sampler_of({.temperature = 0.0f, .dry_multiplier = 1.0f}).some_needed(100).best, 0);
  EXPECT_EQ(sampler_of({.top_k = 0}).some_needed(100).best, 0);
  EXPECT_EQ(sampler_of({.mirostat = 2}).some_needed(100).best, 0);
  EXPECT_EQ(sampler_of({.repeat_penalty = 1.5f, .repeat_last_n = -1}).some_needed(100).best, 0);
  Sampler greedy = sampler_of({.temperature = 0.0f,
                               .repeat_penalty = 1.5f,
                               .logit_bias = {{30, 1.0f}, {4, -1.0f}, {200, 1.0f}}});
  for (const TokenId token : {7, 4, 7}) greedy.accept(token);
  const Sampler::SomeNeeded needed = greedy.some_needed(100);
  EXPECT_EQ(needed.best, 1);
  EXPECT_EQ(needed.apart, (std::vector<TokenId>{4, 7, 30}));
}

}  // namespace
}  // namespace moeflux
