// The order of a chain, what goes into a draw, and which chains need whole rows.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sampling/philox.h"
#include "sampling/sampler.h"

namespace moeflux {
namespace {

Sampler chained(const SamplerOptions& options) {
  Result<Sampler> sampler = Sampler::create(options);
  EXPECT_TRUE(sampler.ok());
  return std::move(sampler).value();
}

std::vector<SamplerStep> order(std::string_view letters) { return *parse_sampler_letters(letters); }

std::set<TokenId> left(const SamplerOptions& options, const std::vector<float>& logits) {
  Sampler sampler = chained(options);
  EXPECT_TRUE(sampler.sample(logits).ok());
  std::set<TokenId> ids;
  for (const TokenLogit& c : sampler.candidates().list) ids.insert(c.id);
  return ids;
}

TEST(SamplerOrder, NamesAndLettersAreLlamaCpps) {
  const auto names = sampler_order_names(default_sampler_order());
  EXPECT_EQ(names, "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature");
  EXPECT_EQ(*parse_sampler_order(names), default_sampler_order());
  EXPECT_EQ(order("edskypmxt"), default_sampler_order());
  EXPECT_EQ(*parse_sampler_order("temp;nucleus;typical;min-p"), order("tpym"));
  EXPECT_TRUE(parse_sampler_order("")->empty());
  for (const char* wrong : {"top_k;", ";top_k", "topk", "top_k;;min_p", "infill"}) {
    const auto parsed = parse_sampler_order(wrong);
    ASSERT_FALSE(parsed.ok()) << wrong;
    EXPECT_NE(parsed.error().message().find("expected one of penalties"), std::string::npos);
  }
  EXPECT_FALSE(parse_sampler_letters("kz").ok());
}

TEST(SamplerChain, StepsSeeWhatEarlierOnesLeft) {
  const std::vector<float> logits = {2.0f, 1.0f, 0.0f, -1.0f};
  SamplerOptions options{.temperature = 4.0f, .top_k = 2, .top_p = 0.7f, .min_p = 0.0f};
  options.samplers = order("kpt");
  EXPECT_EQ(left(options, logits), (std::set<TokenId>{0}));  // 0.73 of two
  options.samplers = order("ptk");
  EXPECT_EQ(left(options, logits), (std::set<TokenId>{0, 1}));  // 0.64 and 0.24 of four
  options.samplers = order("tp");
  EXPECT_EQ(left(options, logits), (std::set<TokenId>{0, 1, 2}));  // flatter by then
  options.samplers = {};
  EXPECT_EQ(left(options, logits).size(), 4u);
}

TEST(SamplerChain, PenaltiesAfterTemperatureAreNotDividedByIt) {
  SamplerOptions options{.temperature = 2.0f, .repeat_last_n = 8, .presence_penalty = 1.0f};
  for (const auto& [letters, expected] : {std::pair{"et", 0.5}, std::pair{"te", 1.0}}) {
    options.samplers = order(letters);
    Sampler sampler = chained(options);
    sampler.accept(0);
    ASSERT_TRUE(sampler.sample(std::vector<float>{0.0f, 0.0f}).ok());
    const Candidates& c = sampler.candidates();
    EXPECT_DOUBLE_EQ(-c.distance(c.list[0], c.best().logit), expected) << letters;
  }
}

TEST(SamplerChain, GreedyHeedsPenaltiesAndDryAlone) {
  SamplerOptions options{.temperature = 0.0f};
  options.xtc_probability = 1.0f;
  options.typical_p = 0.01f;
  options.mirostat = 0;
  Sampler sampler = chained(options);
  const std::vector<float> logits = {1.0f, 1.5f, 1.4f};
  EXPECT_EQ(*sampler.sample(logits), 1);
  EXPECT_EQ(sampler.progress().draws_count, 0u);
  options.dry_multiplier = 5.0f;
  Sampler dry = chained(options);
  for (const TokenId token : {0, 2, 1, 0, 2}) dry.accept(token);
  EXPECT_EQ(*dry.sample(logits), 2);  // 0 2 1 would be a repetition
}

TEST(SamplerChain, DryLooksAtTheLastTokensOfItsWindow) {
  SamplerOptions options{.temperature = 0.0f, .dry_multiplier = 5.0f};
  const std::vector<float> logits = {1.0f, 1.5f, 1.4f};
  // 0 2 1 came within the last five tokens, or before them.
  for (const auto& [text, expected] :
       {std::pair{std::vector<TokenId>{9, 9, 9, 9, 0, 2, 1, 0, 2}, 2},
        std::pair{std::vector<TokenId>{0, 2, 1, 9, 8, 7, 6, 0, 2}, 1},
        std::pair{std::vector<TokenId>{0, 2, 1, 9, 8, 7, 6, 5, 4, 3, 0, 2, 1, 0, 2}, 2}}) {
    options.dry_penalty_last_n = 5;
    Sampler dry = chained(options);
    for (const TokenId token : text) dry.accept(token);
    EXPECT_EQ(*dry.sample(logits), expected) << text.size();
  }
}

TEST(SamplerChain, XtcUsesANumberOfItsOwn) {
  const std::vector<float> logits(50, 1.0f);
  SamplerOptions options{.seed = 9, .xtc_probability = 0.3f, .xtc_threshold = 0.01f};
  options.samplers = order("x");
  Sampler sampler = chained(options);
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(sampler.sample(logits).ok());
    EXPECT_EQ(sampler.progress().draws_count, 2 * i + 2);
    const bool is_cut = uniform_draw(9, 2 * i) < static_cast<double>(0.3f);
    EXPECT_EQ(sampler.candidates().list.size(), is_cut ? 1u : 50u);
  }
}

TEST(SamplerChain, MirostatHoldsTheSurpriseAtTau) {
  std::vector<float> logits;
  for (int i = 1; i <= 2000; ++i) logits.push_back(-std::log(static_cast<float>(i)));
  for (const int32_t version : {1, 2}) {
    for (const float tau : {2.0f, 4.0f}) {
      SamplerOptions options{.temperature = 1.0f, .seed = 3};
      options.mirostat = version;
      options.mirostat_tau = tau;
      Sampler sampler = chained(options);
      double surprise = 0;
      for (int i = 0; i < 3000; ++i) {
        const TokenId token = *sampler.sample(logits);
        const Candidates& c = sampler.candidates();
        const double total = sums_of(c).total;
        surprise +=
            std::log2(total) - std::log2(std::exp(c.distance(
                                   {logits[static_cast<size_t>(token)], token}, c.best().logit)));
      }
      EXPECT_NEAR(surprise / 3000, tau, 0.1) << version;
    }
  }
}

TEST(SamplerChain, ProgressIsAllThereIsBesideHistory) {
  std::vector<float> logits;
  for (int i = 0; i < 200; ++i) logits.push_back(static_cast<float>(i % 17) / 3.0f);
  for (const int32_t version : {0, 1, 2}) {
    SamplerOptions options{.repeat_penalty = 1.1f, .seed = 5};
    options.mirostat = version;
    options.xtc_probability = 0.5f;
    options.dry_multiplier = 0.5f;
    Sampler whole = chained(options);
    std::vector<TokenId> tokens;
    for (int i = 0; i < 40; ++i) {
      tokens.push_back(*whole.sample(logits));
      whole.accept(tokens.back());
    }
    Sampler again = chained(options);
    Sampler resumed = chained(options);
    for (size_t i = 0; i < 40; ++i) {
      if (i == 20) resumed.set_progress(again.progress());
      if (i >= 20) {
        EXPECT_EQ(*resumed.sample(logits), tokens[i]);
      }
      EXPECT_EQ(*again.sample(logits), tokens[i]);
      again.accept(tokens[i]);
      resumed.accept(tokens[i]);
    }
    again.reset();
    EXPECT_EQ(*again.sample(logits), tokens[0]);
  }
}

TEST(SamplerChain, TheBestAreEnoughWhereNothingElseIsLookedAt) {
  const auto needed = [](SamplerOptions options, const char* letters) {
    options.samplers = order(letters);
    return chained(options).best_needed(100);
  };
  SamplerOptions on{.top_k = 40, .typical_p = 0.9f, .top_n_sigma = 1.0f, .xtc_probability = 0.5f};
  on.dry_multiplier = 1.0f;
  EXPECT_EQ(needed(on, "kypmxtd"), 40);
  EXPECT_EQ(needed(on, "tkypmx"), 40);
  for (const char* letters : {"edskypmxt", "sk", "yk", "pk", "mk", "xk", "dk", "ypmxt", ""}) {
    EXPECT_EQ(needed(on, letters), 0) << letters;
  }
  SamplerOptions dynamic{.top_k = 40, .dynatemp_range = 0.5f};
  EXPECT_EQ(needed(dynamic, "kt"), 40);
  EXPECT_EQ(needed(dynamic, "tk"), 0);
  EXPECT_EQ(needed({.top_k = 40, .mirostat = 2}, "kt"), 0);
  EXPECT_EQ(needed({.temperature = 0.0f, .xtc_probability = 0.5f}, "xkt"), 1);
  SamplerOptions greedy_dry{.temperature = 0.0f, .dry_multiplier = 1.0f};
  EXPECT_EQ(needed(greedy_dry, "kd"), 0);
}

TEST(SamplerChain, ABadFieldIsNamed) {
  const auto expect_named = [](const SamplerOptions& options, std::string_view name) {
    const Status status = validate(options);
    ASSERT_FALSE(status.ok()) << name;
    EXPECT_NE(status.error().message().find(name), std::string::npos) << status.error().message();
  };
  expect_named({.typical_p = -0.5f}, "typical_p");
  expect_named({.xtc_probability = 1.5f}, "xtc_probability");
  expect_named({.dynatemp_exponent = -1.0f}, "dynatemp_exponent");
  expect_named({.mirostat = 3}, "mirostat is 3, expected 0, 1 or 2");
  expect_named({.dry_penalty_last_n = -2}, "dry_penalty_last_n");
  expect_named({.dry_sequence_breakers = {""}}, "dry_sequence_breakers");
  expect_named({.samplers = std::vector<SamplerStep>(33)}, "number of samplers");
}

}  // namespace
}  // namespace moeflux
