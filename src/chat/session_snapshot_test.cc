#include "chat/session_snapshot.h"

#include <gtest/gtest.h>

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
          .draws_count = 99};
}

TEST(SessionSnapshot, BringsBackEveryField) {
  const std::vector<float> logits = {1.0f, -2.5f, 3.0f};
  const auto bytes = pack_extra({some_sampler(), logits});
  const auto extra = unpack_extra(bytes, 3);
  ASSERT_TRUE(extra.ok()) << extra.error().to_string();
  EXPECT_EQ(extra->logits, logits);
  // Packed again, nothing is missing.
  EXPECT_EQ(pack_extra(*extra), bytes);
  EXPECT_EQ(extra->sampler.draws_count, 99u);
  EXPECT_EQ(extra->sampler.options.seed, 0x123456789abcdef0u);
  EXPECT_EQ(extra->sampler.options.top_k, 7);
  ASSERT_EQ(extra->sampler.options.logit_bias.size(), 1u);
  EXPECT_EQ(extra->sampler.options.logit_bias[0].bias, -2.0f);
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

}  // namespace
}  // namespace moeflux
