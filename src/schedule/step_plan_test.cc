// One decision of the policy at a time: who is in a step, who begins, who gives way.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "schedule/step_book.h"
#include "schedule/step_policy.h"

namespace moeflux {
namespace {

constexpr int64_t kSecond = 1'000'000;
using Ids = std::vector<uint64_t>;

Ids ids_of(const StepPlan& plan) {
  Ids ids;
  for (const StepPart& part : plan.parts) ids.push_back(part.id);
  return ids;
}

// --- Steps where experts are in memory ---

TEST(StepPlan, WhoWaitsLongestIsInAStepThatHasNotRoomForAll) {
  const StepView view{
      .texts = {{.id = 1, .last_step = 5}, {.id = 2, .last_step = 3}, {.id = 3, .last_step = 4}}};
  EXPECT_EQ(ids_of(plan_step({.rows_max = 2}, view)), (Ids{2, 3}));
  EXPECT_EQ(ids_of(plan_step({.answers_max = 1}, view)), (Ids{2}));
  EXPECT_EQ(ids_of(plan_step({}, view)), (Ids{2, 3, 1}));
}

TEST(StepPlan, APromptHasTheLastRowBesideAnyNumberOfAnswers) {
  StepView view{
      .texts = {
          {.id = 1}, {.id = 2}, {.id = 3}, {.id = 4, .prompt_tokens = 50, .piece_tokens = 50}}};
  EXPECT_EQ(plan_step({.rows_max = 3}, view).parts,
            (std::vector<StepPart>{{.id = 1}, {.id = 2}, {.id = 4, .is_prompt = true}}));
  EXPECT_EQ(ids_of(plan_step({.answers_max = 3}, view)), (Ids{1, 2, 4}));
  view.texts.pop_back();
  EXPECT_EQ(ids_of(plan_step({.rows_max = 3}, view)), (Ids{1, 2, 3}));
}

TEST(StepPlan, PromptsShareWhatAnswersCanWaitForTheShortestFirst) {
  StepView view{.prompt_tokens = 60,
                .texts = {{.id = 1},
                          {.id = 2, .prompt_tokens = 100, .piece_tokens = 100},
                          {.id = 3, .prompt_tokens = 40, .piece_tokens = 40}}};
  EXPECT_EQ(plan_step({}, view).parts,
            (std::vector<StepPart>{{.id = 1},
                                   {.id = 3, .tokens = 40, .is_prompt = true},
                                   {.id = 2, .tokens = 20, .is_prompt = true}}));
  // Nobody waits for an answer: as much as a step takes.
  view.texts.erase(view.texts.begin());
  EXPECT_EQ(plan_step({.rows_max = 130}, view).parts,
            (std::vector<StepPart>{{.id = 3, .tokens = 40, .is_prompt = true},
                                   {.id = 2, .tokens = 90, .is_prompt = true}}));
}

TEST(StepPlan, TenSecondsOfWaitingHalveAPrompt) {
  StepView view{.now_us = 10 * kSecond, .texts = {{.id = 1}, {.id = 2}}};
  for (TextView& text : view.texts) text.piece_tokens = 1000;
  view.texts[0].prompt_tokens = 100;
  view.texts[0].waits_since_us = view.now_us;
  for (const auto& [tokens, first] : {std::pair{199, 2u}, {201, 1u}}) {
    view.texts[1].prompt_tokens = tokens;
    EXPECT_EQ(ids_of(plan_step({.rows_max = 10}, view)), Ids{first}) << tokens;
  }
}

TEST(StepPlan, WhoHasStepsOfItsOwnTakesThemInTurn) {
  const StepView view{
      .texts = {{.id = 1, .alone = true, .last_step = 8}, {.id = 2, .alone = true, .last_step = 7}},
  };
  EXPECT_EQ(ids_of(plan_step({}, view)), Ids{2});
}

// --- Slices where experts come from a drive ---

StepView on_drive(std::vector<TextView> texts) {
  return {.is_drive_bound = true, .texts = std::move(texts)};
}

TEST(StepPlan, ASliceGoesToWhoHasWaitedLongestUnlessItIsAheadByMoreThanOne) {
  StepView view = on_drive({{.id = 1, .served_us = 0, .last_step = 9},
                            {.id = 2, .served_us = kSecond, .last_step = 3},
                            {.id = 3, .served_us = 0, .last_step = 5}});
  const StepPlan plan = plan_step({}, view);
  EXPECT_EQ(plan.owner, 2u);
  EXPECT_TRUE(plan.begins_slice);
  EXPECT_EQ(ids_of(plan), Ids{2});
  view.texts[1].served_us = kSecond + 1;
  EXPECT_EQ(plan_step({}, view).owner, 3u);
  // Where all others are ahead too, it is not.
  view.texts[0].served_us = view.texts[2].served_us = 1;
  EXPECT_EQ(plan_step({}, view).owner, 2u);
}

TEST(StepPlan, AmongThoseThatHadNoStepTheLeastServedHasTheSlice) {
  const StepView view = on_drive({{.id = 1, .served_us = 20}, {.id = 2, .served_us = 10}});
  EXPECT_EQ(plan_step({}, view).owner, 2u);
}

TEST(StepPlan, ASliceEndsBeforeAStepThatWouldLeaveIt) {
  StepView view = on_drive({{.id = 1, .last_step = 9}, {.id = 2, .last_step = 3}});
  view.token_us = 100'000;
  for (const auto& [elapsed_us, owner] : {std::pair{900'000, 1u}, {900'001, 2u}}) {
    view.slice = {.id = 1, .elapsed_us = elapsed_us};
    // Both had the same before.
    view.texts[0].served_us = view.texts[1].served_us + elapsed_us;
    const StepPlan plan = plan_step({}, view);
    EXPECT_EQ(plan.owner, owner) << elapsed_us;
    EXPECT_EQ(plan.begins_slice, owner == 2u);
  }
}

TEST(StepPlan, WhoBeganItsSliceAheadHasLessOfItDownToHalf) {
  StepView view = on_drive({{.id = 1, .last_step = 9}, {.id = 2, .last_step = 3}});
  view.token_us = 100'000;
  const auto owner = [&](int64_t lead_us, int64_t elapsed_us) {
    view.slice = {.id = 1, .elapsed_us = elapsed_us};
    view.texts[0].served_us = lead_us + elapsed_us;
    return plan_step({}, view).owner;
  };
  EXPECT_EQ(owner(300'000, 600'000), 1u);
  EXPECT_EQ(owner(300'000, 600'001), 2u);
  EXPECT_EQ(owner(5 * kSecond, 400'000), 1u);
  EXPECT_EQ(owner(5 * kSecond, 400'001), 2u);
  // A request that began behind the others has no more than a slice.
  EXPECT_EQ(owner(-500'000, 900'000), 1u);
  EXPECT_EQ(owner(-500'000, 900'001), 2u);
}

TEST(StepPlan, APromptOnADriveIsOnePieceAndTakesAnswersAlong) {
  StepView view = on_drive({{.id = 1, .last_step = 4},
                            {.id = 2, .prompt_tokens = 100, .piece_tokens = 100, .last_step = 1}});
  view.prompt_tokens = 40;
  StepPlan plan = plan_step({}, view);
  EXPECT_EQ(plan.parts,
            (std::vector<StepPart>{{.id = 2, .tokens = 40, .is_prompt = true}, {.id = 1}}));
  // A short piece would only share the cache.
  view.prompt_tokens = 31;
  EXPECT_EQ(ids_of(plan_step({}, view)), Ids{2});
  view.prompt_tokens = 32;
  EXPECT_EQ(ids_of(plan_step({}, view)), (Ids{2, 1}));
  // Room for the answer stays; a slice of a piece is over with it.
  view.prompt_tokens = 1000;
  view.slice = {.id = 2, .elapsed_us = 1};
  plan = plan_step({.rows_max = 60}, view);
  EXPECT_EQ(plan.parts,
            (std::vector<StepPart>{{.id = 2, .tokens = 59, .is_prompt = true}, {.id = 1}}));
  EXPECT_TRUE(plan.begins_slice);
}

// --- Admission and preemption ---

ActiveView active(uint64_t id, uint64_t state_bytes, uint64_t saved_bytes, int64_t since_us = 0) {
  return {.id = id, .state_bytes = state_bytes, .saved_bytes = saved_bytes, .since_us = since_us};
}

TEST(Admission, SnapshotsOfWhomItDisplacesTakeRoom) {
  const StepLimits limits{.state_bytes_max = 100, .patience_us = 10};
  AdmissionView view{.now_us = 1000,
                     .waiting = {{.id = 9, .state_bytes = 40}},
                     .active = {active(1, 50, 20, 1), active(2, 40, 30)}};
  // 50 stay and 40 come: with the snapshot of 30 that is too much.
  EXPECT_EQ(plan_admission(limits, view).preempt, (Ids{2, 1}));
  EXPECT_EQ(plan_admission(limits, view).admit, Ids{9});
  view.active[1].saved_bytes = 10;
  EXPECT_EQ(plan_admission(limits, view).preempt, Ids{2});
  // Snapshots as large as states free nothing: so nobody gives way.
  view.active = {active(1, 50, 50, 1), active(2, 40, 40), active(3, 5, 0, 995)};
  EXPECT_TRUE(plan_admission(limits, view).preempt.empty());
  EXPECT_TRUE(plan_admission(limits, view).admit.empty());
}

TEST(Admission, SnapshotsTakeRoomWhereStatesHaveOutgrownIt) {
  const AdmissionView view{.active = {active(1, 60, 25), active(2, 30, 25), active(3, 30, 25)}};
  EXPECT_EQ(plan_admission({.state_bytes_max = 110}, view).preempt, (Ids{3, 2}));
  EXPECT_EQ(plan_admission({.state_bytes_max = 115}, view).preempt, Ids{3});
  EXPECT_TRUE(plan_admission({.state_bytes_max = 120}, view).preempt.empty());
}

TEST(Admission, ASnapshotOfWhoWaitsTakesRoomUntilItBegins) {
  AdmissionView view{.waiting = {{.id = 8, .state_bytes = 70, .saved_bytes = 60}},
                     .active = {active(1, 30, 0)}};
  EXPECT_EQ(plan_admission({.state_bytes_max = 100}, view).admit, Ids{8});
  EXPECT_TRUE(plan_admission({.state_bytes_max = 99}, view).admit.empty());
  // Another's stays where it is, until that one begins too.
  view.waiting.push_back({.id = 9, .state_bytes = 20, .saved_bytes = 20});
  EXPECT_TRUE(plan_admission({.state_bytes_max = 119}, view).admit.empty());
  EXPECT_EQ(plan_admission({.state_bytes_max = 120}, view).admit, (Ids{8, 9}));
}

TEST(Admission, PlacesAreAsManyAsActiveOnesMayBe) {
  const AdmissionView view{.waiting = {{.id = 7}, {.id = 8}, {.id = 9}},
                           .active = {active(1, 0, 0), active(2, 0, 0)}};
  EXPECT_EQ(plan_admission({.active_max = 4, .state_bytes_max = 1}, view).admit, (Ids{7, 8}));
  EXPECT_TRUE(plan_admission({.active_max = 2, .state_bytes_max = 1}, view).admit.empty());
}

TEST(Admission, PatienceHasAnEndForBothOfThem) {
  const StepLimits limits{.active_max = 1, .state_bytes_max = 100, .patience_us = 30};
  const auto displaced = [&](int64_t waited_us, int64_t ran_us) {
    return !plan_admission(limits, {.now_us = 1000,
                                    .waiting = {{.id = 9, .since_us = 1000 - waited_us}},
                                    .active = {active(1, 1, 0, 1000 - ran_us)}})
                .preempt.empty();
  };
  EXPECT_TRUE(displaced(30, 30));
  EXPECT_FALSE(displaced(29, 30));
  EXPECT_FALSE(displaced(30, 29));
}

TEST(Admission, OfThoseThatRanForLongTheFirstGoes) {
  const StepLimits limits{.active_max = 2, .state_bytes_max = 100, .patience_us = 30};
  const AdmissionView view{.now_us = 1000,
                           .waiting = {{.id = 9}},
                           .active = {active(1, 1, 0, 500), active(2, 1, 0, 400)}};
  EXPECT_EQ(plan_admission(limits, view).preempt, Ids{2});
}

// --- Records of steps ---

StepPlan of(const Ids& ids, std::optional<uint64_t> owner = {}, bool begins = false) {
  StepPlan plan{.owner = owner, .begins_slice = begins};
  for (const uint64_t id : ids) plan.parts.push_back({.id = id});
  return plan;
}

StepView seen(StepBook& book, const Ids& ids) {
  StepView view;
  for (const uint64_t id : ids) view.texts.push_back({.id = id});
  book.complete(view);
  return view;
}

TEST(StepBook, ASliceIsItsOwnersTimeAndACommonStepEverybodys) {
  StepBook book({.sharing = Sharing::kSlices});
  for (const uint64_t id : {1, 2, 3}) book.add(id);
  book.note(of({1, 2}, 1, true), {.elapsed_us = 50});
  book.note(of({1}, 1), {.elapsed_us = 30});
  StepView view = seen(book, {1, 2, 3});
  ASSERT_TRUE(view.slice.has_value());
  EXPECT_EQ(view.slice->id, 1u);
  EXPECT_EQ(view.slice->elapsed_us, 80);
  EXPECT_EQ(view.texts[0].served_us, 80);
  EXPECT_EQ(view.texts[1].served_us, 0);
  EXPECT_EQ(view.texts[0].last_step, 2u);
  EXPECT_EQ(view.texts[1].last_step, 1u);
  EXPECT_EQ(view.texts[2].last_step, 0u);
  book.note(of({2}, 2, true), {.elapsed_us = 7});
  EXPECT_EQ(seen(book, {1, 2, 3}).slice->elapsed_us, 7);
  book.note(of({2, 3}), {.elapsed_us = 11});
  view = seen(book, {1, 2, 3});
  EXPECT_FALSE(view.slice.has_value());
  EXPECT_EQ(view.texts[1].served_us, 18);
  EXPECT_EQ(view.texts[2].served_us, 11);
  EXPECT_EQ(view.steps, 4u);
}

TEST(StepBook, WhoComesOrComesBackBeginsWhereTheLeastServedIs) {
  StepBook book({.sharing = Sharing::kSlices});
  book.add(1);
  book.add(2);
  book.note(of({1}, 1, true), {.elapsed_us = 100});
  book.note(of({2}, 2, true), {.elapsed_us = 60});
  seen(book, {1, 2});
  book.add(3);
  EXPECT_EQ(seen(book, {1, 2, 3}).texts[2].served_us, 60);
  // Text 3 is away while the others are served.
  seen(book, {1, 2});
  book.note(of({1}, 1, true), {.elapsed_us = 100});
  book.note(of({2}, 2, true), {.elapsed_us = 90});
  seen(book, {1, 2});
  EXPECT_EQ(seen(book, {1, 2, 3}).texts[2].served_us, 150);
  // A request that was served more before keeps that.
  EXPECT_EQ(seen(book, {1}).texts[0].served_us, 200);
}

TEST(StepBook, APieceGrowsToTheTimeThatAnswersCanWait) {
  StepBook book({.sharing = Sharing::kSteps, .experts_fit = true, .resident_piece_us = 1000});
  book.add(1);
  const auto piece_after = [&](int64_t tokens, int64_t elapsed_us) {
    StepPlan plan;
    plan.parts.push_back({.id = 1, .tokens = tokens, .is_prompt = true});
    book.note(plan, {.elapsed_us = elapsed_us});
    StepView view{.texts = {{.id = 1, .prompt_tokens = 1000}}};
    book.complete(view);
    return view.prompt_tokens;
  };
  EXPECT_EQ(piece_after(64, 100), 128);   // twice at most
  EXPECT_EQ(piece_after(128, 800), 160);  // as would have taken the time
  EXPECT_EQ(piece_after(10, 999), 160);   // a prompt's end says nothing
  EXPECT_EQ(piece_after(10, 2000), 5);    // unless it took too long; no less than
  EXPECT_EQ(piece_after(16, 100'000), 2);
}

// A prompt of 60,000 tokens would otherwise wait for twice as long as it needs.
TEST(StepBook, PiecesGrowWhereMuchWaits) {
  const auto piece_us = [](int64_t waiting) {
    StepBook book({.sharing = Sharing::kSteps, .experts_fit = true});
    for (const uint64_t id : {1, 2}) book.add(id);
    StepView view{.texts = {{.id = 1, .prompt_tokens = waiting}, {.id = 2}}};
    book.note({.parts = {{.id = 2}}}, {.elapsed_us = 2000});
    for (int i = 0; i < 20; ++i) {
      book.complete(view);
      const int64_t tokens = std::max<int64_t>(1, view.prompt_tokens);
      book.note({.parts = {{.id = 2}, {.id = 1, .tokens = tokens, .is_prompt = true}}},
                {.elapsed_us = 2000 + 100 * tokens});
    }
    return 100.0 * static_cast<double>(view.prompt_tokens);
  };
  EXPECT_NEAR(piece_us(300), 25'000, 500);
  EXPECT_NEAR(piece_us(8'000), 50'000, 2500);
  EXPECT_NEAR(piece_us(60'000), 100'000, 2000);
}

TEST(StepBook, AStepOfTheseAnswersAloneIsMeasuredNowAndThen) {
  StepBook book({.sharing = Sharing::kSteps, .experts_fit = true});
  for (const uint64_t id : {1, 2, 3, 4}) book.add(id);
  const auto piece_beside = [&](int64_t answers) {
    StepView view{.texts = {{.id = 4, .prompt_tokens = 1000}}};
    for (int64_t id = 1; id <= answers; ++id) {
      view.texts.push_back({.id = static_cast<uint64_t>(id)});
    }
    book.complete(view);
    return view.prompt_tokens;
  };
  EXPECT_EQ(piece_beside(0), 64);
  EXPECT_EQ(piece_beside(1), 0);  // nobody knows what it takes
  book.note(of({1}), {.elapsed_us = 1000});
  StepPlan mixed = of({1});
  mixed.parts.push_back({.id = 4, .tokens = 64, .is_prompt = true});
  for (int step = 0; step < 32; ++step) {
    EXPECT_GT(piece_beside(1), 0) << step;
    book.note(mixed, {.elapsed_us = 2000});
  }
  EXPECT_EQ(piece_beside(1), 0);
  book.note(of({1}), {.elapsed_us = 1000});
  EXPECT_GT(piece_beside(1), 0);
  EXPECT_EQ(piece_beside(2), 0);  // of one it is known, not of two
  book.note(of({1, 2}), {.elapsed_us = 1500});
  EXPECT_GT(piece_beside(3), 0);
}

// Tokens of a step choose 8 of 256 experts each and share those that several choose.
TEST(StepBook, PiecesOfPromptsDoubleTheTimeBetweenTokensAtMost) {
  const auto cost_us = [](int64_t rows) {
    return 10'000.0 + 20.0 * static_cast<double>(rows) +
           200'000.0 * (1.0 - std::pow(1.0 - 8.0 / 256.0, static_cast<double>(rows)));
  };
  for (const int64_t answers : {1, 8, 32, 128}) {
    StepBook book({.sharing = Sharing::kSteps,
                   .experts_fit = true,
                   .resident_piece_least_us = 0,
                   .resident_piece_most_us = 0});
    const StepLimits limits{.active_max = 256, .rows_max = 2048};
    StepView view{.texts = {{.id = 999, .prompt_tokens = 1 << 20, .piece_tokens = 1 << 20}}};
    book.add(999);
    for (int64_t id = 1; id <= answers; ++id) {
      book.add(static_cast<uint64_t>(id));
      view.texts.push_back({.id = static_cast<uint64_t>(id)});
    }
    int slower = 0;
    int64_t prompt_tokens = 0;
    constexpr int kSteps = 1000;
    for (int step = 0; step < kSteps; ++step) {
      book.complete(view);
      const StepPlan plan = plan_step(limits, view);
      int64_t rows = 0;
      for (const StepPart& part : plan.parts) {
        rows += part.tokens;
        prompt_tokens += part.is_prompt ? part.tokens : 0;
      }
      slower += cost_us(rows) > 2.02 * cost_us(answers) ? 1 : 0;
      book.note(plan, {.elapsed_us = static_cast<int64_t>(cost_us(rows))});
    }
    EXPECT_LE(slower, kSteps / 100) << answers;
    // And no less than half of what could have been.
    int64_t most = 1;
    while (answers + most < limits.rows_max && cost_us(answers + most) < 2.0 * cost_us(answers)) {
      ++most;
    }
    EXPECT_GE(prompt_tokens, kSteps * most / 2) << answers;
  }
}

// Steps of many rows cost a GPU little more than those of few: a long prompt beside one answer
// takes little more than alone, in steps of a sixteenth of its time.
TEST(StepBook, ALongPromptBesideAnAnswerIsSoonDone) {
  StepBook book({.sharing = Sharing::kSteps, .experts_fit = true});
  const StepLimits limits{.active_max = 8, .rows_max = 4096};
  const auto cost_us = [](int64_t rows) {
    return 1600 + 300 * std::min<int64_t>(rows - 1, 30) + 40 * rows;
  };
  StepView view{.texts = {{.id = 1}, {.id = 2, .prompt_tokens = 20'000}}};
  book.add(1);
  book.add(2);
  while (view.texts[1].prompt_tokens > 0) {
    view.texts[1].piece_tokens = view.texts[1].prompt_tokens;
    book.complete(view);
    const StepPlan plan = plan_step(limits, view);
    int64_t rows = 0;
    for (const StepPart& part : plan.parts) rows += part.tokens;
    const int64_t elapsed_us = cost_us(rows);
    EXPECT_LE(elapsed_us, cost_us(1) + 80'000) << view.now_us;
    view.now_us += elapsed_us;
    for (const StepPart& part : plan.parts) {
      if (part.is_prompt) view.texts[1].prompt_tokens -= part.tokens;
    }
    book.note(plan, {.elapsed_us = elapsed_us});
  }
  EXPECT_LE(view.now_us, 1'250'000);  // 0.8 s alone, 20 s in pieces that double a step
}

// As where each step reads layers from the drive, whatever its tokens.
TEST(StepBook, APieceIsNeverShorterThanItsLeast) {
  StepBook book({.experts_fit = true, .resident_piece_us = 1000, .piece_min = 2048});
  book.add(1);
  StepView view{.texts = {{.id = 1, .prompt_tokens = 5000}}};
  book.complete(view);
  EXPECT_EQ(view.prompt_tokens, 2048);
  StepPlan plan;
  plan.parts.push_back({.id = 1, .tokens = 2048, .is_prompt = true});
  book.note(plan, {.elapsed_us = 5'000'000});
  book.complete(view);
  EXPECT_EQ(view.prompt_tokens, 2048);
}

TEST(StepBook, DrivesAreWaitedForOrNotWithRoomBetween) {
  StepBook book({});
  book.add(1);
  EXPECT_TRUE(book.is_drive_bound());  // until it is known
  const auto bound_after = [&](int steps, int64_t stall_us) {
    for (int i = 0; i < steps; ++i) {
      book.note(of({1}), {.elapsed_us = 100'000, .stall_us = stall_us});
    }
    return book.is_drive_bound();
  };
  EXPECT_TRUE(bound_after(1000, 15'000));  // between the shares it stays
  EXPECT_FALSE(bound_after(1000, 5'000));
  EXPECT_FALSE(bound_after(1000, 15'000));
  EXPECT_TRUE(bound_after(1000, 25'000));
}

}  // namespace
}  // namespace moeflux
