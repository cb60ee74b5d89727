// Whatever drafts and however wrong it is: the texts without drafts. One draw again:
//
//   MOEFLUX_TEST_DRAFT_DRAW=123 golden_test --gtest_filter='*DraftDraws*'
//
// A draw chooses the family, its cache and chunks, one to four texts, greedy or sampled,
// constraints, and how many texts run at once or give way and go on from snapshots. Drafts are
// repetitions, or come of the model itself, of one of another family, of the model's MTP layer, or
// of the text that is known, with wrong tokens. MOEFLUX_TEST_DRAFT_DRAWS says how many of them the
// suite tries, 40 if it says nothing.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/format.h"
#include "schedule/third_constraint_test_util.h"
#include "tests/golden/draft_test_util.h"
#include "tests/support/soak.h"

namespace moeflux::testing {
namespace {

constexpr uint64_t kDrawsUsual = 40;
constexpr uint64_t kShares = 4;  // of the draws, each a test of its own

class DraftDraws : public ::testing::TestWithParam<uint64_t> {
 protected:
  /// With a cache that the generator chooses.
  static std::shared_ptr<OpenModel> open_drawn(std::mt19937& random, const std::string& folder,
                                               DraftOptions drafts = {}) {
    constexpr uint64_t kCaches[] = {0, uint64_t{1} << 16, uint64_t{1} << 30};
    constexpr int64_t kChunks[] = {0, 7, 33};
    return open_golden(folder, kCaches[random() % 3], kChunks[random() % 3], std::move(drafts));
  }
  static std::shared_ptr<OpenModel> draw_model(std::mt19937& random) {
    const std::vector<std::string> families = golden_families();
    return open_drawn(random, golden_folder(families[random() % families.size()]));
  }
  static std::shared_ptr<OpenModel> draw_mtp_model(std::mt19937& random) {
    const std::vector<std::string> families = mtp_families();
    const std::string& family = families[random() % families.size()];
    return open_drawn(random, tests_directory() + "/golden/mtp/" + family);
  }
  /// The model that drafts: the same, with its MTP layer where that does.
  static std::shared_ptr<OpenModel> with_mtp(std::mt19937& random,
                                             const std::shared_ptr<OpenModel>& model,
                                             DraftOptions drafts) {
    drafts.mtp_tokens = 1 + static_cast<int64_t>(random() % 3);
    if (random() % 2 == 0) drafts.match_min = kContext;  // by that layer alone
    return open_drawn(random, model->directory, std::move(drafts));
  }

  static DraftOptions draw_options(std::mt19937& random) {
    return {.mode = random() % 4 == 0 ? DraftMode::kAuto : DraftMode::kOn,
            .tokens_max = 1 + static_cast<int64_t>(random() % 12),
            .match_min = 1 + static_cast<int64_t>(random() % 8)};
  }
  static DraftOptions draw_drafts(std::mt19937& random, const std::shared_ptr<OpenModel>& model,
                                  const std::vector<TextRequest>& requests,
                                  const std::vector<Written>& expected) {
    DraftOptions drafts = draw_options(random);
    const auto drafted_by = [&](std::shared_ptr<OpenModel> small) {
      const float confidence_min = random() % 2 == 0 ? 0.0f : 0.2f;
      const auto drafting = std::make_shared<DraftModel>(std::move(small), confidence_min,
                                                         model->engine->spec().vocab_size);
      drafts.make_source = [drafting] { return drafting->make_source(); };
    };
    switch (random() % 4) {
      case 0:
        break;  // repetitions alone
      case 1:
        drafted_by(open_golden(model->directory, uint64_t{1} << 30, 0));
        break;
      case 2:
        drafted_by(draw_model(random));
        break;
      default:
        drafts.make_source = source_of(
            Oracle(requests, expected, static_cast<double>(random() % 10) / 10.0, random()));
    }
    return drafts;
  }

  void expect_same_texts(uint64_t seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const bool has_mtp = seed / kShares % 4 == 0;  // so that no share is without
    const auto model = has_mtp ? draw_mtp_model(random) : draw_model(random);
    ASSERT_NE(model, nullptr);
    const auto vocab_size = static_cast<TokenId>(model->engine->spec().vocab_size);
    std::vector<TextRequest> requests = draw_requests(random, vocab_size);
    for (TextRequest& request : requests) {
      if (random() % 3 != 0) continue;
      request.constraint = std::make_shared<ThirdConstraint>(-1, vocab_size);
    }
    SchedulerOptions options{.active_max = 1 + static_cast<int>(random() % 4)};
    if (random() % 2 == 0) options.patience = std::chrono::milliseconds(0);
    uint64_t steps = 0;
    const std::vector<Written> expected = write(model, requests, steps, options);
    std::shared_ptr<OpenModel> drafting = model;
    if (has_mtp) {
      drafting = with_mtp(random, model, draw_options(random));
      ASSERT_NE(drafting, nullptr);
    } else {
      model->drafts = draw_drafts(random, model, requests, expected);
    }
    uint64_t steps_with_drafts = 0;
    DraftCounts drafts;
    EXPECT_EQ(write(drafting, requests, steps_with_drafts, options, &drafts), expected)
        << model->directory << "\nagain: MOEFLUX_TEST_DRAFT_DRAW=" << seed
        << " golden_test --gtest_filter='*DraftDraws*'";
    if (steps_with_drafts < steps) ++with_fewer_steps_;
    if (has_mtp) mtp_drafted_ += drafts.drafted;
  }

  uint64_t with_fewer_steps_ = 0;  // draws
  int64_t mtp_drafted_ = 0;        // tokens, where MTP layers drafted as well
};

TEST_P(DraftDraws, HaveTheTextsWithoutDrafts) {
  const std::optional<uint64_t> one = number_from("MOEFLUX_TEST_DRAFT_DRAW");
  if (one) {
    if (GetParam() == *one % kShares) expect_same_texts(*one);
    return;
  }
  const uint64_t wanted = number_from("MOEFLUX_TEST_DRAFT_DRAWS").value_or(kDrawsUsual);
  for (uint64_t seed = GetParam(); seed < wanted && !HasFailure(); seed += kShares) {
    expect_same_texts(seed);
  }
  // Draws without an accepted draft would be no test.
  EXPECT_TRUE(wanted < kDrawsUsual || (with_fewer_steps_ > 0 && mtp_drafted_ > 0));
}

INSTANTIATE_TEST_SUITE_P(All, DraftDraws, ::testing::Range(uint64_t{0}, kShares));

}  // namespace
}  // namespace moeflux::testing
