// The policy in a simulated world: texts that come and end, steps that cost what a model says, and
// a clock that only they move.
#include "schedule/step_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <random>

#include "schedule/step_book.h"

namespace moeflux {
namespace {

constexpr int64_t kSecondUs = 1'000'000;

/// The time of a step and how long of that it waits for a drive.
using Cost = std::function<StepMeasure(const StepPlan& plan)>;

int64_t tokens_of(const StepPlan& plan) {
  int64_t tokens = 0;
  for (const StepPart& part : plan.parts) tokens += part.tokens;
  return tokens;
}

/// All experts in memory: a step costs its weights once, and each token its products.
Cost resident(int64_t step_us, int64_t token_us) {
  return [=](const StepPlan& plan) {
    return StepMeasure{.elapsed_us = step_us + token_us * tokens_of(plan)};
  };
}

/// A step reads the experts that its tokens choose and the cache has not: each chooses 8 of 256, by
/// chance, and to read all of them takes so long.
Cost from_drive(int64_t all_experts_us, double hit_rate, int64_t token_us) {
  return [=](const StepPlan& plan) {
    const auto tokens = static_cast<double>(tokens_of(plan));
    const double chosen = 1.0 - std::pow(1.0 - 8.0 / 256.0, tokens);
    const auto stall =
        static_cast<int64_t>(static_cast<double>(all_experts_us) * chosen * (1.0 - hit_rate));
    return StepMeasure{.elapsed_us = stall + token_us * tokens_of(plan), .stall_us = stall};
  };
}

struct SimulatedText {
  uint64_t id = 0;
  int64_t arrives_us = 0;
  int64_t prompt_left = 0;
  int64_t tokens_left = 0;
  uint64_t state_bytes = 0;
  bool parked = false;

  int64_t waits_since_us = 0;  // for room
  int64_t active_since_us = 0;
  std::optional<int64_t> first_token_us = {};
  int64_t last_token_us = 0;
  int64_t others = 0;            // most other answers since its last token
  int64_t longest_wait_us = 0;   // from a token to the next, while it had room
  double longest_excess_us = 0;  // the same beyond a second for each of the others
  int64_t engine_us = 0;         // that it was served
  int64_t tokens = 0;
  int64_t displaced = 0;
  std::optional<int64_t> ended_us = {};
};

class World {
 public:
  World(StepLimits given, StepBookOptions book, Cost cost)
      : limits(given), book_(book), cost_(std::move(cost)) {}

  SimulatedText& add(SimulatedText text) {
    text.id = texts.size() + 1;
    text.waits_since_us = text.arrives_us;
    texts.push_back(text);
    return texts.back();
  }

  /// Until all have ended, or the clock has come so far.
  void run(int64_t until_us = INT64_MAX) {
    while (now_us < until_us) {
      arrive();
      admit();
      const StepPlan plan = plan_step(limits, view());
      if (!plan.parts.empty()) {
        step(plan);
      } else if (!skip_to_next_arrival()) {
        return;
      }
    }
  }

  int64_t num_ended() const {
    return std::ranges::count_if(texts, [](const auto& text) { return text.ended_us.has_value(); });
  }

  StepLimits limits;
  std::deque<SimulatedText> texts;
  int64_t now_us = 0;
  int64_t tokens_in_company = 0;  // of answers, in steps with others

 private:
  SimulatedText& text(uint64_t id) { return texts[id - 1]; }

  void arrive() {
    for (SimulatedText& one : texts) {
      if (one.arrives_us > now_us || one.ended_us || is_known(one.id)) continue;
      waiting_.push_back(one.id);
    }
  }
  bool is_known(uint64_t id) const {
    return std::ranges::count(waiting_, id) + std::ranges::count(active_, id) > 0;
  }
  bool skip_to_next_arrival() {
    int64_t next = INT64_MAX;
    for (const SimulatedText& one : texts) {
      if (one.arrives_us > now_us) next = std::min(next, one.arrives_us);
    }
    if (next == INT64_MAX) return false;
    now_us = next;
    return true;
  }

  void admit() {
    AdmissionView view;
    view.now_us = now_us;
    for (const uint64_t id : waiting_) {
      const SimulatedText& one = text(id);
      view.waiting.push_back(
          {.id = id, .state_bytes = one.state_bytes, .since_us = one.waits_since_us});
    }
    for (const uint64_t id : active_) {
      const SimulatedText& one = text(id);
      view.active.push_back({.id = id,
                             .is_parked = one.parked,
                             .state_bytes = one.state_bytes,
                             .since_us = one.active_since_us});
    }
    const AdmissionPlan plan = plan_admission(limits, view);
    for (const uint64_t id : plan.preempt) {
      ASSERT_EQ(std::erase(active_, id), 1u);
      book_.remove(id);
      text(id).waits_since_us = now_us;
      ++text(id).displaced;
      waiting_.push_back(id);
    }
    for (const uint64_t id : plan.admit) {
      ASSERT_EQ(std::erase(waiting_, id), 1u);
      active_.push_back(id);
      book_.add(id);
      text(id).active_since_us = now_us;
      text(id).last_token_us = now_us;
    }
    ASSERT_LE(active_.size(), static_cast<size_t>(limits.active_max));
    uint64_t bytes = 0;
    for (const uint64_t id : active_) bytes += text(id).state_bytes;
    if (active_.size() > 1) {
      ASSERT_LE(bytes, limits.state_bytes_max);
    }
  }

  StepView view() {
    StepView view;
    view.now_us = now_us;
    for (const uint64_t id : active_) {
      const SimulatedText& one = text(id);
      if (one.parked) continue;
      view.texts.push_back({.id = id,
                            .prompt_tokens = one.prompt_left,
                            .piece_tokens = one.prompt_left,
                            .waits_since_us = one.arrives_us});
    }
    book_.complete(view);
    return view;
  }

  void step(const StepPlan& plan) {
    ASSERT_LE(tokens_of(plan), limits.rows_max);
    const StepMeasure measure = cost_(plan);
    const int64_t answering = std::ranges::count_if(
        active_, [&](uint64_t id) { return text(id).prompt_left == 0 && !text(id).parked; });
    for (const uint64_t id : active_) text(id).others = std::max(text(id).others, answering - 1);
    now_us += measure.elapsed_us;
    for (const StepPart& part : plan.parts) {
      SimulatedText& one = text(part.id);
      ASSERT_EQ(part.is_prompt, one.prompt_left > 0);
      ASSERT_GT(part.tokens, 0);
      if (!plan.owner || *plan.owner == part.id) one.engine_us += measure.elapsed_us;
      if (!part.is_prompt) tokens_in_company += plan.parts.size() > 1 ? 1 : 0;
      one.prompt_left -= part.is_prompt ? part.tokens : 0;
      ASSERT_GE(one.prompt_left, 0);
      if (one.prompt_left == 0) note_token(one);
    }
    book_.note(plan, measure);
  }

  void note_token(SimulatedText& one) {
    if (one.first_token_us) {
      const int64_t wait = now_us - one.last_token_us;
      one.longest_wait_us = std::max(one.longest_wait_us, wait);
      const int64_t excess = wait - one.others * kSecondUs;
      one.longest_excess_us = std::max(one.longest_excess_us, static_cast<double>(excess));
    } else {
      one.first_token_us = now_us;
    }
    one.last_token_us = now_us;
    one.others = 0;
    ++one.tokens;
    if (--one.tokens_left > 0) return;
    one.ended_us = now_us;
    std::erase(active_, one.id);
    book_.remove(one.id);
  }

  StepBook book_;
  Cost cost_;
  std::vector<uint64_t> waiting_;
  std::vector<uint64_t> active_;
};

constexpr StepLimits kRoom = {.active_max = 64, .state_bytes_max = UINT64_MAX / 2};
constexpr StepBookOptions kFits = {.experts_fit = true};

TEST(StepPolicy, ALongPromptNeverStopsAnswersForHalfASecondWhereExpertsAreResident) {
  // From a GPU to a slow processor: what a step and what a token of it cost.
  for (const auto& [step_us, token_us] :
       {std::pair{4'000, 60}, {15'000, 900}, {60'000, 6'000}, {90'000, 15'000}}) {
    World world(kRoom, kFits, resident(step_us, token_us));
    for (int i = 0; i < 4; ++i) world.add({.prompt_left = 20, .tokens_left = 3000});
    const uint64_t prompt =
        world.add({.arrives_us = kSecondUs, .prompt_left = 16'000, .tokens_left = 10}).id;
    world.run();
    ASSERT_EQ(world.num_ended(), 5);
    for (int i = 0; i < 4; ++i)
      EXPECT_LE(world.texts[i].longest_wait_us, kSecondUs / 2) << token_us;
    // The time that answers leave is the prompt's, beside what it would take alone.
    const SimulatedText& one = world.texts[prompt - 1];
    const int64_t took = *one.first_token_us - one.arrives_us;
    EXPECT_LT(took, 3 * (16'000 * token_us + 32 * step_us)) << token_us;
  }
}

TEST(StepPolicy, EveryStepHasATokenOfEveryAnswerWhereExpertsAreResident) {
  World world(kRoom, kFits, resident(10'000, 100));
  for (int i = 0; i < 32; ++i) world.add({.prompt_left = 10, .tokens_left = 100});
  world.run();
  // 32 prompts at once, then 99 tokens each.
  EXPECT_LE(world.now_us, 105 * (10'000 + 32 * 100));
  EXPECT_EQ(world.tokens_in_company, 32 * 99);
}

TEST(StepPolicy, NoAnswerWaitsASecondForEachOtherAndTwoMoreOnADrive) {
  // A cache of a tenth of the experts, all of which take 2.2 s to read.
  for (const int answers : {1, 2, 5, 12}) {
    World world(kRoom, {}, from_drive(2'200'000, 0.35, 2'000));
    for (int i = 0; i < answers; ++i) world.add({.prompt_left = 64, .tokens_left = 150});
    world.add({.arrives_us = 20 * kSecondUs, .prompt_left = 2000, .tokens_left = 20});
    world.add({.arrives_us = 25 * kSecondUs, .prompt_left = 300, .tokens_left = 20});
    world.run();
    ASSERT_EQ(world.num_ended(), answers + 2);
    for (const SimulatedText& one : world.texts) {
      EXPECT_LE(one.longest_excess_us, 2.0 * kSecondUs) << answers << " answers, text " << one.id;
    }
  }
}

TEST(StepPolicy, AnswersOnADriveHaveSlicesAndEqualShares) {
  // Tokens of one text cost three times those of another.
  const auto cost = [](const StepPlan& plan) {
    const int64_t us = tokens_of(plan) * (plan.parts.front().id == 1 ? 150'000 : 50'000);
    return StepMeasure{.elapsed_us = us, .stall_us = us / 2};
  };
  World world(kRoom, {}, cost);
  for (int i = 0; i < 3; ++i) world.add({.prompt_left = 1, .tokens_left = 1 << 20});
  world.run(120 * kSecondUs);
  for (const SimulatedText& one : world.texts) {
    EXPECT_NEAR(static_cast<double>(one.engine_us), 40e6, 0.2 * 40e6 / 2) << one.id;
  }
  EXPECT_EQ(world.tokens_in_company, 0);
  // A model few of whose experts a token leaves out: whom a step brings along reads nothing more.
  StepLimits few = kRoom;
  few.sharing_tokens = 3;
  World shared(few, {}, cost);
  for (int i = 0; i < 3; ++i) shared.add({.prompt_left = 1, .tokens_left = 50});
  shared.run();
  EXPECT_GT(shared.tokens_in_company, 3 * 49 / 2);
}

TEST(StepPolicy, TurnsKeepTheirOrderHoweverLongStepsTake) {
  std::mt19937 random(3);
  const auto cost = [&](const StepPlan& plan) {
    // The first text's steps are long enough that its slices end early.
    const int64_t usual = plan.parts.front().id == 1 ? 150'000 : 8'000;
    const int64_t us = usual * (60 + static_cast<int64_t>(random() % 80)) / 100;
    return StepMeasure{.elapsed_us = us, .stall_us = us / 2};
  };
  World world(kRoom, {}, cost);
  for (int i = 0; i < 4; ++i) world.add({.prompt_left = 1, .tokens_left = 1 << 20});
  world.run(400 * kSecondUs);
  for (const SimulatedText& one : world.texts) {
    EXPECT_LE(one.longest_wait_us, 3 * kSecondUs + 500'000) << one.id;
    EXPECT_NEAR(static_cast<double>(one.engine_us), 100e6, 3e6) << one.id;
  }
}

TEST(StepPolicy, SharesOfEqualTextsAreEqualWhereverExpertsAre) {
  for (const bool fits : {false, true}) {
    World world(kRoom, {.experts_fit = fits},
                fits ? resident(10'000, 500) : from_drive(2'000'000, 0.4, 1'000));
    for (int i = 0; i < 6; ++i) {
      world.add({.arrives_us = i * kSecondUs, .prompt_left = 30 + 50 * i, .tokens_left = 1 << 20});
    }
    world.run(20 * kSecondUs);
    std::vector<int64_t> before;
    for (const SimulatedText& one : world.texts) before.push_back(one.tokens);
    world.run(320 * kSecondUs);
    double least = 1e18, most = 0;
    for (size_t i = 0; i < 6; ++i) {
      const auto tokens = static_cast<double>(world.texts[i].tokens - before[i]);
      least = std::min(least, tokens);
      most = std::max(most, tokens);
    }
    EXPECT_LE(most, 1.2 * least) << fits;
  }
}

TEST(StepPolicy, WhoComesLateOrComesBackHasNoClaimOnThePast) {
  World world(kRoom, {.sharing = Sharing::kSlices}, from_drive(1'000'000, 0.5, 1'000));
  world.add({.prompt_left = 1, .tokens_left = 1 << 20});
  world.add({.prompt_left = 1, .tokens_left = 1 << 20, .parked = true});
  world.add({.arrives_us = 100 * kSecondUs, .prompt_left = 1, .tokens_left = 1 << 20});
  world.run(100 * kSecondUs);
  world.texts[1].parked = false;
  const int64_t before = world.texts[0].engine_us;
  world.run(190 * kSecondUs);
  EXPECT_NEAR(static_cast<double>(world.texts[0].engine_us - before), 30e6, 3e6);
}

TEST(StepPolicy, ALongPromptComesToItsTurnAmongShortOnes) {
  World world({.active_max = 64, .state_bytes_max = 1 << 20}, kFits, resident(5'000, 400));
  const uint64_t patient = world.add({.prompt_left = 8000, .tokens_left = 5}).id;
  // Short ones take all the time there is.
  for (int i = 0; i < 4000; ++i) {
    world.add({.arrives_us = i * 30'000, .prompt_left = 100, .tokens_left = 2});
  }
  world.run(100 * kSecondUs);
  EXPECT_TRUE(world.texts[patient - 1].ended_us);
}

TEST(StepPolicy, StatesHaveTheirRoomAndWhoWaitsForLongTakesIt) {
  StepLimits limits{.active_max = 8, .state_bytes_max = 100};
  World world(limits, kFits, resident(10'000, 100));
  for (int i = 0; i < 2; ++i) {
    world.add({.prompt_left = 10, .tokens_left = 40'000, .state_bytes = 50});
  }
  const uint64_t late =
      world.add({.arrives_us = kSecondUs, .prompt_left = 10, .tokens_left = 10, .state_bytes = 60})
          .id;
  world.run();
  EXPECT_EQ(world.num_ended(), 3);
  const SimulatedText& one = world.texts[late - 1];
  EXPECT_NEAR(static_cast<double>(*one.first_token_us - one.arrives_us), 30e6, 1e6);
  EXPECT_EQ(one.displaced, 0);
  EXPECT_GE(world.texts[0].displaced + world.texts[1].displaced, 2);
}

TEST(StepPolicy, ParkedTextsGiveWayFirstAndNobodyForNothing) {
  const StepLimits limits{.active_max = 2, .state_bytes_max = 100, .patience_us = 10};
  AdmissionView view{.now_us = 1000,
                     .waiting = {{.id = 9, .state_bytes = 40, .since_us = 500}},
                     .active = {{.id = 1, .state_bytes = 50, .since_us = 0},
                                {.id = 2, .is_parked = true, .state_bytes = 30, .since_us = 995}}};
  const AdmissionPlan plan = plan_admission(limits, view);
  EXPECT_EQ(plan.preempt, std::vector<uint64_t>{2});
  EXPECT_EQ(plan.admit, std::vector<uint64_t>{9});
  view.active[0].since_us = 995;
  view.waiting[0].state_bytes = 60;
  EXPECT_TRUE(plan_admission(limits, view).preempt.empty());
  EXPECT_TRUE(plan_admission(limits, view).admit.empty());
  // The states have outgrown the room: the last request to begin goes, and is resumed when there is
  // some.
  view.active[0].state_bytes = 80;
  EXPECT_EQ(plan_admission(limits, view).preempt, std::vector<uint64_t>{2});
  view.active.pop_back();
  view.waiting.clear();
  view.active[0].state_bytes = 200;
  EXPECT_TRUE(plan_admission(limits, view).preempt.empty());
  // Nobody overtakes who waits.
  view.active[0].state_bytes = 50;
  view.waiting = {{.id = 8, .state_bytes = 60, .since_us = 999}, {.id = 9, .state_bytes = 1}};
  EXPECT_TRUE(plan_admission(limits, view).admit.empty());
}

TEST(StepPolicy, WhoHasStepsOfItsOwnHasEverySecondAtMost) {
  StepView view;
  view.prompt_tokens = 32;
  view.texts = {{.id = 1},
                {.id = 2, .alone = true, .prompt_tokens = 100, .piece_tokens = 50},
                {.id = 3, .prompt_tokens = 9, .piece_tokens = 9, .behind = 4},
                {.id = 4, .prompt_tokens = 9, .piece_tokens = 9}};
  StepPlan plan = plan_step({}, view);
  EXPECT_TRUE(plan.is_alone);
  EXPECT_EQ(plan.parts, (std::vector<StepPart>{{.id = 2, .tokens = 32, .is_prompt = true}}));
  view.was_alone = true;
  plan = plan_step({}, view);
  EXPECT_FALSE(plan.is_alone);
  // Text 3 will have for nothing what text 4 evaluates now.
  EXPECT_EQ(plan.parts,
            (std::vector<StepPart>{{.id = 1}, {.id = 4, .tokens = 9, .is_prompt = true}}));
  EXPECT_TRUE(plan_step({}, {}).parts.empty());
}

TEST(StepPolicy, NobodyStarvesWhateverComes) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](unsigned n) { return static_cast<int64_t>(random() % n); };
    const bool fits = below(2) == 0;
    StepLimits limits{.active_max = 1 + below(8),
                      .state_bytes_max = 100,
                      .rows_max = 8 + below(500),
                      .answers_max = 4 + below(60),
                      .sharing_tokens = 1 + below(40)};
    World world(limits, {.experts_fit = fits},
                fits ? resident(1000 + below(50'000), 50 + below(3000))
                     : from_drive(200'000 + below(3'000'000), 0.3, 1'000));
    for (int i = 0; i < 25; ++i) {
      world.add({.arrives_us = below(60) * kSecondUs,
                 .prompt_left = 1 + (below(5) == 0 ? below(6000) : below(200)),
                 .tokens_left = 1 + below(120),
                 .state_bytes = static_cast<uint64_t>(1 + below(120))});
    }
    world.run();
    EXPECT_EQ(world.num_ended(), 25) << "seed " << seed;
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace moeflux
