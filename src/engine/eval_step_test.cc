// Steps of several sequences: who fails fails alone, unless the step does; and every sequence has
// the logits it has alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "engine/tiny_engine_test_util.h"
#include "tests/support/eval_last.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;

class EvalStepTest : public TinyEngineTest {
 protected:
  using Rows = std::vector<float>;

  struct Part {
    std::unique_ptr<Sequence> sequence;
    Tokens text;
    Rows expected;  // of every token
    Rows rows;      // rows that the sinks saw
  };
  Part part(Engine& engine, Tokens text) {
    Part part{start(engine), std::move(text), {}, {}};
    part.expected = all_logits(engine, part.text);
    return part;
  }
  /// The next `count` tokens of a part.
  static StepItem next(Part& part, size_t count, const EvalOptions& options = {}) {
    const auto done = static_cast<size_t>(part.sequence->length());
    return {.sequence = part.sequence.get(),
            .tokens = std::span(part.text).subspan(done, count),
            .options = options,
            .sink = [&part](int64_t, std::span<const float> rows) {
              part.rows.insert(part.rows.end(), rows.begin(), rows.end());
              return Status();
            }};
  }
  static Rows row_of(const Part& part, size_t position) {
    const auto begin = part.expected.begin() + static_cast<ptrdiff_t>(position * kVocab);
    return {begin, begin + kVocab};
  }
  static Tokens tokens_from(TokenId first, size_t n) {
    Tokens tokens(n);
    for (size_t i = 0; i < n; ++i) {
      tokens[i] = static_cast<TokenId>((static_cast<size_t>(first) + i * 29) % kVocab);
    }
    return tokens;
  }
};

TEST_F(EvalStepTest, EverySequenceHasTheLogitsItHasAlone) {
  const auto engine = open({.expert_cache_bytes = 0, .prefill_chunk = 6});
  Part a = part(*engine, tokens_from(3, 9));
  Part b = part(*engine, tokens_from(7, 4));
  Part c = part(*engine, tokens_from(11, 15));
  std::vector<StepItem> items;
  items.push_back(next(a, 9));
  items.push_back(next(b, 4, {.logits = LogitsMode::kAll, .phase = StepPhase::kDecode}));
  items.push_back(next(c, 15, {.logits = LogitsMode::kAll}));
  engine->eval_step(items);
  for (const StepItem& item : items) EXPECT_TRUE(item.outcome.ok());
  EXPECT_EQ(a.rows, row_of(a, 8));
  EXPECT_EQ(b.rows, b.expected);
  EXPECT_EQ(c.rows, c.expected);
}

TEST_F(EvalStepTest, HiddenRowsAreThoseOfTheObserverWhoeverSharesTheStep) {
  const auto engine = open({.prefill_chunk = 6});
  const std::vector<Tokens> texts = {tokens_from(3, 9), tokens_from(7, 1), tokens_from(11, 4)};
  const auto rows_of = [&](std::span<const Tokens> some, LogitsMode hidden, LogitsMode logits) {
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<StepItem> items;
    std::vector<Rows> rows(some.size());
    for (size_t i = 0; i < some.size(); ++i) {
      sequences.push_back(start(*engine));
      items.push_back({.sequence = sequences.back().get(),
                       .tokens = some[i],
                       .options = {.logits = logits, .hidden = hidden},
                       .hidden_sink = [&, i](int64_t first, std::span<const float> seen) {
                         const auto width = static_cast<size_t>(engine->spec().hidden_size);
                         EXPECT_EQ(static_cast<size_t>(first) + seen.size() / width,
                                   static_cast<size_t>(sequences[i]->length()));
                         rows[i].insert(rows[i].end(), seen.begin(), seen.end());
                         return Status();
                       }});
    }
    engine->eval_step(items);
    for (const StepItem& item : items) EXPECT_TRUE(item.outcome.ok());
    return rows;
  };
  const auto width = static_cast<size_t>(engine->spec().hidden_size);
  const std::vector<Rows> all = rows_of(texts, LogitsMode::kAll, LogitsMode::kNone);
  const std::vector<Rows> last = rows_of(texts, LogitsMode::kLast, LogitsMode::kLast);
  for (size_t i = 0; i < texts.size(); ++i) {
    ASSERT_EQ(all[i].size(), texts[i].size() * width);
    EXPECT_EQ(last[i], Rows(all[i].end() - static_cast<ptrdiff_t>(width), all[i].end()));
    EXPECT_EQ(all[i],
              rows_of(std::span(texts).subspan(i, 1), LogitsMode::kAll, LogitsMode::kNone)[0]);
  }
}

/// Counts the rows of every step.
class RowCounter : public HiddenObserver {
 public:
  void hidden_state(Encoder&, int64_t layer, Tensor hidden) override {
    if (layer == 0) steps.push_back(hidden.dim(0));
  }
  std::vector<int64_t> steps;
};

TEST_F(EvalStepTest, StepsHaveNoMoreRowsThanAChunkAndDecodeGoesFirst) {
  const auto engine = open({.prefill_chunk = 6});
  Part prompt = part(*engine, tokens_from(3, 9));
  Part decode = part(*engine, tokens_from(7, 1));
  RowCounter counter;
  std::vector<StepItem> items;
  std::vector<int> ends;
  items.push_back(next(prompt, 9, {.observer = &counter}));
  items.push_back(next(decode, 1, {.phase = StepPhase::kDecode}));
  for (int i = 0; i < 2; ++i) {
    items[static_cast<size_t>(i)].sink = [&ends, i](int64_t, std::span<const float>) {
      ends.push_back(i);
      return Status();
    };
  }
  engine->eval_step(items);
  EXPECT_EQ(counter.steps, (std::vector<int64_t>{6, 4}));
  EXPECT_EQ(ends, (std::vector<int>{1, 0}));
}

TEST_F(EvalStepTest, AStepOfShortSequencesMayHaveMoreRowsThanAContext) {
  const auto engine = open({.context_length = 4, .step_sequences = 3});
  std::vector<Part> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(part(*engine, tokens_from(3 + i, 4)));
  RowCounter counter;
  std::vector<StepItem> items;
  for (Part& own : parts) items.push_back(next(own, 4, {.logits = LogitsMode::kAll}));
  items.front().options.observer = &counter;
  engine->eval_step(items);
  EXPECT_EQ(counter.steps, std::vector<int64_t>{12});
  for (const Part& own : parts) EXPECT_EQ(own.rows, own.expected);
}

TEST_F(EvalStepTest, WhatDoesNotFitFailsAlone) {
  const auto engine = open({.context_length = 8});
  Part good = part(*engine, tokens_from(3, 5));
  Part full = part(*engine, tokens_from(4, 8));
  ASSERT_TRUE(eval_last(*engine, *full.sequence, std::span(full.text).first(7)).ok());
  Part empty = part(*engine, tokens_from(5, 4));
  Part wrong = part(*engine, tokens_from(6, 4));
  const Tokens outside = {1, kVocab};
  std::vector<StepItem> items;
  items.push_back(next(empty, 0));
  items.push_back(next(good, 5));
  items.push_back({.sequence = full.sequence.get(), .tokens = std::span(full.text).first(2)});
  items.push_back({.sequence = wrong.sequence.get(), .tokens = outside});
  items.push_back({.sequence = good.sequence.get(), .tokens = std::span(good.text).first(1)});
  engine->eval_step(items);
  expect_error(items[0].outcome, ErrorCode::kInvalidArgument, {"no tokens"});
  EXPECT_TRUE(items[1].outcome.ok());
  EXPECT_EQ(good.rows, row_of(good, 4));
  expect_error(items[2].outcome, ErrorCode::kResourceExhausted, {"context of 8"});
  expect_error(items[3].outcome, ErrorCode::kInvalidArgument, {"token 64"});
  expect_error(items[4].outcome, ErrorCode::kInvalidArgument, {"items 1 and 4", "one sequence"});
  EXPECT_EQ(good.sequence->length(), 5);
  EXPECT_EQ(wrong.sequence->length(), 0);
  std::vector<StepItem> again;
  again.push_back(next(full, 1));
  again.push_back(next(wrong, 4));
  engine->eval_step(again);
  EXPECT_EQ(full.rows, row_of(full, 7));
  EXPECT_EQ(wrong.rows, row_of(wrong, 3));
}

TEST_F(EvalStepTest, ACancelledItemEndsBetweenStepsAndTheOthersGoOn) {
  const auto engine = open({.prefill_chunk = 8});
  Part stopped = part(*engine, tokens_from(3, 20));
  Part other = part(*engine, tokens_from(7, 20));
  std::stop_source stop;
  std::vector<StepItem> items;
  items.push_back(next(stopped, 20, {.stop = stop.get_token()}));
  items.push_back(next(other, 20));
  items[0].options.progress = [&](int64_t evaluated) {
    if (evaluated == 16) stop.request_stop();
    return true;
  };
  engine->eval_step(items);
  expect_error(items[0].outcome, ErrorCode::kCancelled, {});
  EXPECT_EQ(stopped.sequence->length(), 16);
  EXPECT_TRUE(items[1].outcome.ok());
  EXPECT_EQ(other.rows, row_of(other, 19));
  std::vector<StepItem> rest;
  rest.push_back(next(stopped, 4));
  engine->eval_step(rest);
  EXPECT_EQ(stopped.rows, row_of(stopped, 19));
}

TEST_F(EvalStepTest, AnErrorOfASinkIsItsItemsAlone) {
  const auto engine = open({.prefill_chunk = 4});
  Part failing = part(*engine, tokens_from(3, 8));
  Part other = part(*engine, tokens_from(7, 6));
  std::vector<StepItem> items;
  items.push_back(next(failing, 8, {.logits = LogitsMode::kAll}));
  items.push_back(next(other, 6));
  items[0].sink = [](int64_t, std::span<const float>) {
    return Status(Error(ErrorCode::kIo, "disk full"));
  };
  engine->eval_step(items);
  expect_error(items[0].outcome, ErrorCode::kIo, {"disk full"});
  EXPECT_EQ(failing.sequence->length(), 4);
  EXPECT_EQ(other.rows, row_of(other, 5));
}

TEST_F(EvalStepTest, TheBestAreEachItemsOwn) {
  const auto engine = open({});
  Part a = part(*engine, tokens_from(3, 5));
  Part b = part(*engine, tokens_from(7, 5));
  Part c = part(*engine, tokens_from(9, 5));
  Part d = part(*engine, tokens_from(11, 5));
  constexpr BestLogits kThree{.count = 3, .of = kVocab};
  Part e = part(*engine, tokens_from(13, 5));
  constexpr BestLogits kTwo{.count = 2, .of = kVocab - 1};
  constexpr BestLogits kOne{.count = 1, .of = kVocab};
  const auto best_of = [&](const Part& p, const BestLogits& best) {
    const auto found = eval_best(*engine, *start(*engine), p.text, best);
    EXPECT_TRUE(found.ok());
    return std::vector<TokenLogit>(found->begin(), found->end());
  };
  // Three neighbours that want some of the same ids, one that wants a row, one that wants others.
  const std::vector<std::vector<TokenLogit>> expected = {
      best_of(a, kThree), best_of(e, kOne), best_of(c, kThree), {}, best_of(d, kTwo)};
  std::vector<StepItem> items;
  items.push_back(next(a, 5, {.best = kThree}));
  items.push_back(next(e, 5, {.best = kOne}));
  items.push_back(next(c, 5, {.best = kThree}));
  items.push_back(next(b, 5));
  items.push_back(next(d, 5, {.best = kTwo}));
  engine->eval_step(items);
  for (size_t item = 0; item < items.size(); ++item) {
    const std::vector<TokenLogit>& found = items[item].best;
    ASSERT_EQ(found.size(), expected[item].size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].id, expected[item][i].id);
      EXPECT_EQ(found[i].logit, expected[item][i].logit);
    }
  }
  EXPECT_EQ(b.rows, row_of(b, 4));
  EXPECT_TRUE(a.rows.empty());
}

/// The ids of a row that a ruled item has, in order, since it does not matter how they come.
std::vector<TokenId> ruled_ids(std::span<const float> row, const BestLogits& best) {
  std::vector<TokenLogit> free;
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < best.of; ++id) {
    if (!best.allowed.words.empty() && !best.allowed.allows(id)) continue;
    if (std::ranges::count(best.apart, id) > 0) {
      ids.push_back(id);
    } else {
      free.push_back({row[static_cast<size_t>(id)], id});
    }
  }
  std::ranges::sort(free, is_better);
  free.resize(std::min(free.size(), static_cast<size_t>(best.count)));
  for (const TokenLogit& one : free) ids.push_back(one.id);
  std::ranges::sort(ids);
  return ids;
}

TEST_F(EvalStepTest, RuledOnesAreTheBestOfTheAllowedAndAllThatIsApart) {
  constexpr int kItems = 40;  // more than there are masks
  const auto engine = open({.prefill_chunk = 2 * kItems});
  std::vector<Part> parts;
  std::vector<std::vector<uint32_t>> masks(kItems);
  std::vector<std::vector<TokenId>> apart(kItems);
  std::vector<StepItem> items;
  for (int i = 0; i < kItems; ++i) parts.push_back(part(*engine, tokens_from(3 + i, 2)));
  for (int i = 0; i < kItems; ++i) {
    const auto at = static_cast<size_t>(i);
    if (i % 3 != 0) masks[at].resize((kVocab + 31) / 32);
    for (int id = 0; id < kVocab; ++id) {
      if (i % 3 != 0 && id % (i % 7 + 1) == 0) masks[at][id / 32] |= 1u << (id % 32);
      if (i % 4 != 0 && id % (i % 5 + 1) == 0) apart[at].push_back(id);
    }
    if (i == 20) masks[at].assign((kVocab + 31) / 32, 0);
    const BestLogits best{.count = 1 + i % 9,
                          .of = kVocab,
                          .is_ruled = true,
                          .allowed = {masks[at]},
                          .apart = apart[at]};
    items.push_back(next(parts[at], 2, {.best = best}));
  }
  items[10].options.best = {.count = 2, .of = kVocab};
  items[30].options.best = {};
  engine->eval_step(items);
  for (size_t i = 0; i < items.size(); ++i) {
    ASSERT_TRUE(items[i].outcome.ok());
    const Rows row = row_of(parts[i], 1);
    EXPECT_EQ(parts[i].rows, i == 30 ? row : Rows());
    std::vector<TokenId> found;
    for (const TokenLogit& one : items[i].best) {
      EXPECT_EQ(one.logit, row[static_cast<size_t>(one.id)]);
      found.push_back(one.id);
    }
    std::ranges::sort(found);
    const BestLogits& best = items[i].options.best;
    EXPECT_EQ(found, i == 30 ? std::vector<TokenId>() : ruled_ids(row, best)) << i;
  }
}

TEST_F(EvalStepTest, ACallForTheBestReadsNoRow) {
  const auto engine = open({});
  Part a = part(*engine, tokens_from(3, 5));
  int rows = 0;
  const auto count_rows = [&](int64_t, std::span<const float>) {
    ++rows;
    return Status();
  };
  const Status done =
      engine->eval(*start(*engine), a.text, {.best = {.count = 1, .of = kVocab}}, count_rows);
  EXPECT_TRUE(done.ok());
  EXPECT_EQ(rows, 0);
}

// Where the file ends, one expert lacks a matrix: with some tokens a step can be had, with others
// it fails, and with it all that are in it.
TEST_F(EvalStepTest, AFailedReadBreaksEveryItemOfTheStep) {
  const std::string weights = folder_ / "model.safetensors";
  const std::string whole = testing::read_bytes(weights);
  const auto engine = open({.expert_cache_bytes = 0});
  uint64_t last_matrix = 0;
  for (const ExpertLayer& layer : engine->loaded().experts.layers) {
    for (const ExpertExtent& extent : layer.extents) {
      last_matrix = std::max(last_matrix, extent.offset);
    }
  }
  const Tokens prompt = tokens_from(3, 4);
  std::vector<Part> good;
  std::vector<Part> bad;
  for (TokenId token = 0; token < kVocab; ++token) {
    Tokens text = prompt;
    text.push_back(token);
    Part p = part(*engine, text);
    ASSERT_TRUE(eval_last(*engine, *p.sequence, prompt).ok());
    const auto fork = engine->fork(*p.sequence);
    ASSERT_TRUE(fork.ok());
    std::filesystem::resize_file(weights, last_matrix);
    (eval_last(*engine, **fork, std::span(&token, 1)).ok() ? good : bad).push_back(std::move(p));
    testing::write_bytes(weights, whole);
  }
  ASSERT_GE(good.size(), 2u);
  ASSERT_GE(bad.size(), 1u);
  std::vector<Part*> parts = {&good[0], &bad[0], &good[1]};
  std::vector<CheckpointId> checkpoints;
  std::vector<StepItem> items;
  for (Part* p : parts) {
    checkpoints.push_back(*engine->checkpoint(*p->sequence));
    items.push_back(next(*p, 1, {.phase = StepPhase::kDecode}));
  }
  std::filesystem::resize_file(weights, last_matrix);
  engine->eval_step(items);
  for (size_t i = 0; i < parts.size(); ++i) {
    expect_error(items[i].outcome, ErrorCode::kIo, {"layer ", "expert ", weights});
    EXPECT_EQ(parts[i]->sequence->length(), 4);
    expect_error(eval_last(*engine, *parts[i]->sequence, std::span(parts[i]->text).last(1)),
                 ErrorCode::kFailedPrecondition, {"broke at token 4"});
    ASSERT_TRUE(engine->restore(*parts[i]->sequence, checkpoints[i]).ok());
    EXPECT_TRUE(parts[i]->rows.empty());
  }
  // Without the row that needs what cannot be read, the others are what they are alone.
  std::vector<StepItem> again;
  again.push_back(next(good[1], 1));
  again.push_back(next(good[0], 1));
  engine->eval_step(again);
  EXPECT_EQ(good[0].rows, row_of(good[0], 4));
  EXPECT_EQ(good[1].rows, row_of(good[1], 4));
  testing::write_bytes(weights, whole);
  std::vector<StepItem> last;
  last.push_back(next(bad[0], 1));
  engine->eval_step(last);
  EXPECT_EQ(bad[0].rows, row_of(bad[0], 4));
}

/// A device whose memory runs out after so many allocations.
class ShortDevice : public Device {
 public:
  explicit ShortDevice(Device& inner) : inner_(inner) {}
  std::string_view name() const override { return inner_.name(); }
  std::string_view description() const override { return inner_.description(); }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    if (left == 0) return Error(ErrorCode::kResourceExhausted, "out of memory");
    --left;
    return inner_.allocate(bytes, kind);
  }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t scratch_bytes) override {
    return inner_.create_encoder(scratch_bytes);
  }
  int left = 1 << 30;

 private:
  Device& inner_;
};

TEST_F(EvalStepTest, AnItemWithoutMemoryFailsAloneAndCanBeTriedAgain) {
  ShortDevice device(*device_);
  auto engine = Engine::open(folder_.path(), device, {});
  ASSERT_TRUE(engine.ok());
  Part a = part(**engine, tokens_from(3, 5));
  Part b = part(**engine, tokens_from(7, 5));
  std::vector<StepItem> items;
  items.push_back(next(a, 5));
  items.push_back(next(b, 5));
  device.left = 0;  // the first one has the pages that part() gave back
  (*engine)->eval_step(items);
  EXPECT_TRUE(items[0].outcome.ok());
  expect_error(items[1].outcome, ErrorCode::kResourceExhausted, {"out of memory"});
  EXPECT_EQ(a.rows, row_of(a, 4));
  EXPECT_EQ(b.sequence->length(), 0);
  device.left = 1 << 30;
  std::vector<StepItem> again;
  again.push_back(next(b, 5));
  (*engine)->eval_step(again);
  EXPECT_EQ(b.rows, row_of(b, 4));
}

}  // namespace
}  // namespace moeflux
