// Several sequences in common steps through the C interface and the C++ facade.
#include <cstring>

#include "tests/library/library_model.h"

namespace moeflux::testing {
namespace {

using Tokens = std::vector<int32_t>;

class EvalBatch : public LibraryTest {
 protected:
  Tokens other() { return take(model_.tokenize("The small dog ran to the")); }

  Sequence first_ = take(model_.create_sequence());
  Sequence second_ = take(model_.create_sequence());
};

TEST_F(EvalBatch, GivesEverySequenceTheLogitsItHasAlone) {
  Tokens a = story();
  Tokens b = other();
  std::vector<float> row(first_.vocab_size());
  const std::vector<BatchItem> prompts = {{&first_, a, row}, {&second_, b}};
  for (const Status& status : model_.eval_batch(prompts)) expect_ok(status);
  EXPECT_EQ(row, fresh_logits(a));
  EXPECT_EQ(logits(first_), row);
  EXPECT_EQ(logits(second_), fresh_logits(b));
  const uint64_t before = take(model_.metrics()).evaluated_tokens;
  for (int i = 0; i < 3; ++i) {
    a.push_back(take(first_.sample()));
    b.push_back(take(second_.sample()));
    const std::vector<BatchItem> tokens = {{&second_, std::span(b).last(1)},
                                           {&first_, std::span(a).last(1), row}};
    for (const Status& status : model_.eval_batch(tokens)) expect_ok(status);
  }
  EXPECT_EQ(row, fresh_logits(a));
  EXPECT_EQ(logits(second_), fresh_logits(b));
  EXPECT_EQ(take(second_.position()), static_cast<int64_t>(b.size()));
  // Six here, and what the other sequences of the comparison had.
  EXPECT_EQ(take(model_.metrics()).evaluated_tokens - before, 6 + a.size() + b.size());
}

TEST_F(EvalBatch, AnItemThatCannotBeEvaluatedFailsAlone) {
  const Tokens good = story();
  const Tokens bad = {1, -5};
  std::vector<float> row(first_.vocab_size());
  Model stranger = open({.context_length = 16});
  Sequence strange = take(stranger.create_sequence());
  std::vector<float> small(3);
  Sequence third = take(model_.create_sequence());
  const std::vector<BatchItem> items = {{&second_, bad}, {&first_, good, row},
                                        {&first_, good}, {&strange, good},
                                        {nullptr, good}, {&third, good, small}};
  const std::vector<Status> statuses = model_.eval_batch(items);
  ASSERT_EQ(statuses.size(), 6u);
  expect_error(statuses[0], Code::kInvalidArgument, {"token -5"});
  expect_ok(statuses[1]);
  expect_error(statuses[2], Code::kInvalidArgument, {"one sequence"});
  expect_error(statuses[3], Code::kInvalidArgument, {"another model's"});
  expect_error(statuses[4], Code::kInvalidArgument, {"sequence is null"});
  expect_error(statuses[5], Code::kBufferTooSmall, {"logits_count is 3"});
  EXPECT_EQ(row, fresh_logits(good));
  EXPECT_EQ(logits(first_), row);
  EXPECT_EQ(take(second_.position()), 0);
  expect_ok(model_.eval_batch(std::vector<BatchItem>{{&second_, good, row}}).front());
  EXPECT_EQ(row, fresh_logits(good));
}

TEST_F(EvalBatch, TheCallReturnsTheFirstFailureAndFillsEveryResult) {
  const Tokens good = story();
  const int32_t wrong = -1;
  mf_batch_item items[2] = {MF_OPTIONS(items[0]), MF_OPTIONS(items[1])};
  items[0].sequence = first_.get();
  items[0].tokens = good.data();
  items[0].count = good.size();
  items[1].sequence = second_.get();
  items[1].tokens = &wrong;
  items[1].count = 1;
  mf_error results[2];
  mf_error error;
  std::memset(results, 0x7f, sizeof(results));
  EXPECT_EQ(mf_model_eval_batch(model_.get(), items, 2, results, &error),
            MF_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(results[0].code, MF_OK);
  EXPECT_EQ(results[1].code, MF_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, results[1].message);
  EXPECT_EQ(mf_model_eval_batch(model_.get(), items, 1, nullptr, nullptr), MF_OK);
}

TEST_F(EvalBatch, BadCallsFailEveryItem) {
  const int32_t token = 1;
  mf_batch_item items[2] = {MF_OPTIONS(items[0]), MF_OPTIONS(items[1])};
  mf_error results[2];
  mf_error error;
  const auto expect_invalid = [&](const char* piece, mf_model* model, mf_batch_item* from,
                                  size_t count) {
    std::memset(results, 0x7f, sizeof(results));
    EXPECT_EQ(mf_model_eval_batch(model, from, count, results, &error), MF_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.message).find(piece), std::string::npos) << error.message;
    for (size_t i = 0; from != nullptr && i < count; ++i) {
      EXPECT_EQ(results[i].code, MF_ERROR_INVALID_ARGUMENT);
      EXPECT_STREQ(results[i].message, error.message);
    }
  };
  expect_invalid("model is null", nullptr, items, 2);
  expect_invalid("items is null", model_.get(), nullptr, 2);
  expect_invalid("no items", model_.get(), items, 0);
  items[1].struct_size = 8;
  expect_invalid("item 1: struct_size is 8", model_.get(), items, 2);
  items[0].sequence = first_.get();
  items[0].tokens = &token;
  items[0].count = 1;
  items[0].phase = 7;
  expect_invalid("phase is 7", model_.get(), items, 1);
  mf_eval_options options = MF_OPTIONS(options);
  options.phase = -1;
  EXPECT_EQ(mf_sequence_eval(first_.get(), &token, 1, &options, &error), MF_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(take(first_.position()), 0);
}

TEST_F(EvalBatch, PhasesAreTheCallersAndChangeNoBit) {
  const Tokens tokens = story();
  std::vector<float> row(first_.vocab_size());
  std::vector<float> same(first_.vocab_size());
  const std::vector<BatchItem> items = {{&first_, tokens, row, MF_PHASE_DECODE},
                                        {&second_, tokens, same, MF_PHASE_PROMPT}};
  for (const Status& status : model_.eval_batch(items)) expect_ok(status);
  EXPECT_EQ(row, fresh_logits(tokens));
  EXPECT_EQ(same, row);
}

}  // namespace
}  // namespace moeflux::testing
