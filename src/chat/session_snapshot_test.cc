#include "chat/session_snapshot.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;

SamplerState some_sampler() {
  return {.options = {.temperature = 0.5f,
                      .top_k = 7,
                      .top_p = 0.75f,
                      .min_p = 0.125f,
                      .repeat_penalty = 1.5f,
                      .repeat_last_n = -1,
                      .presence_penalty = 0.25f,
                      .frequency_penalty = -0.5f,
                      .logit_bias = {{.token = 3, .bias = -2.0f}},
                      .seed = 0x123456789abcdef0},
          .progress = {.draws_count = 99, .mirostat_mu = {}}};
}

TEST(SessionSnapshot, BringsBackEveryField) {
  const std::vector<float> logits = {1.0f, -2.5f, 3.0f};
  const auto bytes = pack_extra({some_sampler(), logits});
  const auto extra = unpack_extra(bytes, 3);
  ASSERT_TRUE(extra.ok()) << extra.error().to_string();
  EXPECT_EQ(extra->logits, logits);
  // Packed again, nothing is missing.
  EXPECT_EQ(pack_extra(*extra), bytes);
  EXPECT_EQ(extra->sampler.progress.draws_count, 99u);
  EXPECT_EQ(extra->sampler.options.seed, 0x123456789abcdef0u);
  EXPECT_EQ(extra->sampler.options.top_k, 7);
  ASSERT_EQ(extra->sampler.options.logit_bias.size(), 1u);
  EXPECT_EQ(extra->sampler.options.logit_bias[0].bias, -2.0f);
}

TEST(SessionSnapshot, BringsBackMirostatStepsAndBreakers) {
  SamplerState sampler = some_sampler();
  sampler.progress.mirostat_mu = 3.25;
  sampler.options.mirostat = 2;
  sampler.options.typical_p = 0.5f;
  sampler.options.dry_base = 1.25f;
  sampler.options.dry_penalty_last_n = -1;
  sampler.options.dry_sequence_breakers = {"\n\n", "é"};
  sampler.options.samplers = {SamplerStep::kTemperature, SamplerStep::kMinP};
  const auto bytes = pack_extra({sampler, {}});
  const auto extra = unpack_extra(bytes, 3);
  ASSERT_TRUE(extra.ok()) << extra.error().to_string();
  EXPECT_EQ(pack_extra(*extra), bytes);
  EXPECT_EQ(extra->sampler.progress.mirostat_mu, 3.25);
  EXPECT_EQ(extra->sampler.options.mirostat, 2);
  EXPECT_EQ(extra->sampler.options.typical_p, 0.5f);
  EXPECT_EQ(extra->sampler.options.dry_base, 1.25f);
  EXPECT_EQ(extra->sampler.options.dry_penalty_last_n, -1);
  EXPECT_EQ(extra->sampler.options.dry_sequence_breakers, sampler.options.dry_sequence_breakers);
  EXPECT_EQ(extra->sampler.options.samplers, sampler.options.samplers);
}

TEST(SessionSnapshot, ReadsVersion1AsDefaultsForWhatItLacks) {
  const std::vector<float> logits = {1.0f, -2.5f, 3.0f};
  auto bytes = pack_extra({some_sampler(), logits});
  // Version 1 ends after the logits: nine options, draws, one bias and three logits.
  bytes.resize(4 + 6 * 4 + 2 * 4 + 2 * 8 + 8 + 8 + 8 + 3 * 4);
  bytes[0] = std::byte{1};
  const auto extra = unpack_extra(bytes, 3);
  ASSERT_TRUE(extra.ok()) << extra.error().to_string();
  EXPECT_EQ(extra->logits, logits);
  EXPECT_EQ(pack_extra(*extra), pack_extra({some_sampler(), logits}));
}

TEST(SessionSnapshot, RefusesWhatIsNotAWholeOne) {
  auto bytes = pack_extra({some_sampler(), std::vector<float>(3)});
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    expect_error(unpack_extra(std::span(bytes).first(cut), 3), ErrorCode::kCorruption, {"whole"});
  }
  expect_error(unpack_extra(bytes, 4), ErrorCode::kCorruption, {"3 logits", "4"});
  bytes.push_back({});
  expect_error(unpack_extra(bytes, 3), ErrorCode::kCorruption, {"whole"});
  bytes[0] = std::byte{9};
  expect_error(unpack_extra(bytes, 3), ErrorCode::kUnsupported, {"version 9"});
}

TEST(SessionSnapshot, RefusesOptionsThatCannotBe) {
  SamplerState sampler = some_sampler();
  sampler.options.repeat_penalty = -1.0f;
  expect_error(unpack_extra(pack_extra({sampler, {}}), 3), ErrorCode::kInvalidArgument,
               {"repeat_penalty"});
}

TEST(SessionSnapshot, RefusesAConstraintOrProgressThatCannotBe) {
  const SessionExtra good{
      .sampler = some_sampler(),
      .constraint = {.stated = {.kind = ConstraintKind::kLark, .text = "start: \"a\""},
                     .begin = 3}};
  const auto back = unpack_extra(pack_extra(good), 3);
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  EXPECT_EQ(back->constraint.stated.kind, ConstraintKind::kLark);
  EXPECT_EQ(back->constraint.begin, 3);
  SessionExtra odd = good;
  odd.constraint.stated.kind = static_cast<ConstraintKind>(200);
  expect_error(unpack_extra(pack_extra(odd), 3), ErrorCode::kCorruption, {"kind 200"});
  odd = good;
  odd.constraint.begin = -1;
  expect_error(unpack_extra(pack_extra(odd), 3), ErrorCode::kCorruption, {"token -1"});
  odd = good;
  odd.sampler.progress.mirostat_mu = HUGE_VAL;
  expect_error(unpack_extra(pack_extra(odd), 3), ErrorCode::kInvalidArgument, {"mirostat's mu"});
  odd = good;
  odd.sampler.options.samplers = {static_cast<SamplerStep>(99)};
  expect_error(unpack_extra(pack_extra(odd), 3), ErrorCode::kCorruption, {"sampler 99"});
}

// Each option has its own place: none is written from another, or over it.
TEST(SessionSnapshot, NoOptionTakesAnothersPlace) {
  SamplerState sampler = some_sampler();
  SamplerOptions& o = sampler.options;
  o.typical_p = 0.91f;
  o.top_n_sigma = 1.5f;
  o.xtc_probability = 0.25f;
  o.xtc_threshold = 0.15f;
  o.dynatemp_range = 0.3f;
  o.dynatemp_exponent = 1.25f;
  o.mirostat_tau = 4.5f;
  o.mirostat_eta = 0.2f;
  o.dry_multiplier = 0.8f;
  o.dry_base = 1.75f;
  o.dry_allowed_length = 4;
  o.dry_penalty_last_n = 77;
  o.mirostat = 0;
  sampler.progress.mirostat_mu.reset();
  const auto back = unpack_extra(pack_extra({sampler, {}}), 3);
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  const SamplerOptions& got = back->sampler.options;
  EXPECT_EQ(got.typical_p, 0.91f);
  EXPECT_EQ(got.top_n_sigma, 1.5f);
  EXPECT_EQ(got.xtc_probability, 0.25f);
  EXPECT_EQ(got.xtc_threshold, 0.15f);
  EXPECT_EQ(got.dynatemp_range, 0.3f);
  EXPECT_EQ(got.dynatemp_exponent, 1.25f);
  EXPECT_EQ(got.mirostat_tau, 4.5f);
  EXPECT_EQ(got.mirostat_eta, 0.2f);
  EXPECT_EQ(got.dry_multiplier, 0.8f);
  EXPECT_EQ(got.dry_base, 1.75f);
  EXPECT_EQ(got.dry_allowed_length, 4);
  EXPECT_EQ(got.dry_penalty_last_n, 77);
  EXPECT_FALSE(back->sampler.progress.mirostat_mu.has_value());
}

}  // namespace
}  // namespace moeflux
