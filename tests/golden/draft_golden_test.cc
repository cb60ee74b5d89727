// Texts with drafts are the texts without, token for token and with the same log-probabilities:
// of every family, greedy and sampled, in company, from drafts that are right, wrong or too long.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/golden/draft_test_util.h"
#include "tests/support/golden_file.h"
#include "tests/support/soak.h"

namespace moeflux::testing {
namespace {

constexpr int kRounds = 4;  // of each family
constexpr const char* kOther = "qwen3_moe";

class DraftGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(DraftGolden, TextWithDraftsIsTheTextWithout) {
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(GetParam())));
  const uint64_t caches[] = {0, uint64_t{1} << 16, uint64_t{1} << 30};
  const int64_t chunks[] = {0, 7, 33};
  const auto model =
      open_golden(golden_folder(GetParam()), caches[random() % 3], chunks[random() % 3]);
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
  const auto model = open_golden(golden_folder(GetParam()), uint64_t{1} << 16, 7);
  const auto itself = open_golden(golden_folder(GetParam()), uint64_t{1} << 30, 0);
  const auto other = open_golden(golden_folder(kOther), uint64_t{1} << 30, 0);
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
  const auto plain = open_golden(folder, caches[random() % 3], chunks[random() % 3]);
  ASSERT_NE(plain, nullptr);
  EXPECT_EQ(plain->engine->spec().draft_layers, 0);
  uint64_t steps = 0;
  DraftCounts drafts;
  for (Soak soak(kRounds); soak.next();) {
    const auto requests = draw_requests(random, plain->engine->spec().vocab_size);
    const std::vector<Written> expected = write(plain, requests, steps);
    const auto model =
        open_golden(folder, caches[random() % 3], chunks[random() % 3],
                    {.mode = soak.round() % 4 == 3 ? DraftMode::kAuto : DraftMode::kOn,
                     .match_min = soak.round() % 2 == 0 ? 1 : 64,
                     .mtp_tokens = 1 + static_cast<int64_t>(random() % 3)});
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->engine->spec().draft_layers, 1);
    EXPECT_EQ(write(model, requests, steps, {}, &drafts), expected) << "round " << soak.round();
  }
  EXPECT_GT(drafts.drafted, 0);
}

INSTANTIATE_TEST_SUITE_P(All, MtpDraftGolden, ::testing::ValuesIn(asked(mtp_families())),
                         [](const auto& family) { return family.param; });

INSTANTIATE_TEST_SUITE_P(All, DraftGolden, ::testing::ValuesIn(asked(golden_families())),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace moeflux::testing
