#include "engine/engine.h"

#include <gtest/gtest.h>

#include "engine/tiny_engine_test_util.h"
#include "tests/support/eval_last.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;

class EngineTest : public TinyEngineTest {};

TEST_F(EngineTest, LastLogitsAreTheLastRowOfAll) {
  const auto engine = open({});
  const Tokens tokens = some_tokens(9);
  const std::vector<float> all = all_logits(*engine, tokens);
  ASSERT_EQ(all.size(), 9u * kVocab);
  const auto sequence = start(*engine);
  EXPECT_EQ(eval(*engine, *sequence, tokens, LogitsMode::kLast), last_row(all));
  EXPECT_EQ(sequence->length(), 9);
}

TEST_F(EngineTest, NoLogitsReachTheSinkWhenNoneAreWanted) {
  const auto engine = open({});
  const auto sequence = start(*engine);
  EXPECT_TRUE(eval(*engine, *sequence, some_tokens(5), LogitsMode::kNone).empty());
  EXPECT_EQ(sequence->length(), 5);
  const auto last = eval_last(*engine, *sequence, some_tokens(1));
  EXPECT_TRUE(last.ok());
}

TEST_F(EngineTest, ChunkSizeDoesNotChangeABit) {
  const Tokens tokens = some_tokens(300);  // over a page of keys and values
  const std::vector<float> expected = all_logits(*open({}), tokens);
  for (const int64_t chunk : {int64_t{1}, int64_t{7}, int64_t{256}}) {
    EXPECT_EQ(all_logits(*open({.prefill_chunk = chunk}), tokens), expected) << chunk;
  }
}

TEST_F(EngineTest, ChunksAreTheDevicesUnlessSomeoneAsks) {
  EXPECT_EQ(open({})->prefill_chunk(),
            std::min(device_->preferred_prefill_chunk(), open({})->memory_plan().context_length));
  EXPECT_EQ(open({.prefill_chunk = 7})->prefill_chunk(), 7);
  const auto chunk = [&](int64_t sequences) {
    return open({.context_length = 20, .prefill_chunk = 70, .step_sequences = sequences})
        ->prefill_chunk();
  };
  EXPECT_EQ(chunk(1), 20);
  EXPECT_EQ(chunk(3), 60);
  EXPECT_EQ(chunk(4), 70);
}

TEST_F(EngineTest, SinkSeesPositionsInOrder) {
  const auto engine = open({.prefill_chunk = 4});
  const auto sequence = start(*engine);
  std::vector<std::pair<int64_t, size_t>> calls;
  for (const size_t n : {size_t{3}, size_t{6}}) {
    const Status done = engine->eval(*sequence, some_tokens(n), {.logits = LogitsMode::kAll},
                                     [&](int64_t first, std::span<const float> rows) {
                                       calls.emplace_back(first, rows.size() / kVocab);
                                       return Status();
                                     });
    ASSERT_TRUE(done.ok());
  }
  EXPECT_EQ(calls, (std::vector<std::pair<int64_t, size_t>>{{0, 3}, {3, 4}, {7, 2}}));
}

TEST_F(EngineTest, RefusedTokensLeaveTheSequenceAsItWas) {
  const auto engine = open({.context_length = 8});
  const auto sequence = start(*engine);
  const Tokens tokens = some_tokens(8);
  const std::vector<float> expected = all_logits(*engine, tokens);
  ASSERT_TRUE(eval_last(*engine, *sequence, std::span(tokens).first(5)).ok());

  expect_error(eval_last(*engine, *sequence, {}), ErrorCode::kInvalidArgument, {"no tokens"});
  expect_error(eval_last(*engine, *sequence, Tokens{1, kVocab}), ErrorCode::kInvalidArgument,
               {"token 64", "position 6", "vocabulary of 64"});
  expect_error(eval_last(*engine, *sequence, Tokens{-1}), ErrorCode::kInvalidArgument,
               {"token -1"});
  expect_error(eval_last(*engine, *sequence, some_tokens(4)), ErrorCode::kResourceExhausted,
               {"4 tokens after 5", "context of 8"});

  EXPECT_EQ(sequence->length(), 5);
  const auto last = eval_last(*engine, *sequence, std::span(tokens).last(3));
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(std::vector<float>(last->begin(), last->end()), last_row(expected));
  expect_error(eval_last(*engine, *sequence, some_tokens(1)), ErrorCode::kResourceExhausted,
               {"context of 8"});
}

TEST_F(EngineTest, ATextGoesOnBeyondTheTokensThatMemoryIsSetAsideFor) {
  testing::TinyModel model = testing::make_tiny_model({});
  model.config["max_position_embeddings"] = 16384;
  model.write(folder_.path());
  const auto engine = open({});
  EXPECT_EQ(engine->memory_plan().context_length, 16384);
  EXPECT_EQ(engine->state_bytes(4096), engine->memory_plan().state_bytes);
  EXPECT_EQ(engine->state_bytes(16384), engine->memory_plan().context_bytes);
  const Tokens tokens = some_tokens(4400);
  const auto asked = open({.context_length = 4400});
  EXPECT_EQ(asked->memory_plan().context_bytes, asked->memory_plan().state_bytes);
  EXPECT_EQ(eval(*engine, *start(*engine), tokens, LogitsMode::kLast),
            eval(*asked, *start(*asked), tokens, LogitsMode::kLast));
}

TEST_F(EngineTest, ContextBeyondTheModelsIsRefused) {
  for (const int64_t context : {int64_t{-1}, testing::TinyModel::kContext + 1}) {
    expect_error(Engine::open(folder_.path(), *device_, {.context_length = context}),
                 ErrorCode::kInvalidArgument, {"context length", "1024"});
  }
  EXPECT_EQ(open({})->memory_plan().context_length, testing::TinyModel::kContext);
  EXPECT_EQ(open({.context_length = 10})->memory_plan().context_length, 10);
}

TEST_F(EngineTest, StopBetweenChunksKeepsTheSequenceUsable) {
  const auto engine = open({.prefill_chunk = 4});
  const Tokens tokens = some_tokens(10);
  const std::vector<float> expected = all_logits(*engine, tokens);
  const auto sequence = start(*engine);
  std::stop_source stop;
  const Status stopped =
      engine->eval(*sequence, tokens, {.logits = LogitsMode::kAll, .stop = stop.get_token()},
                   [&](int64_t, std::span<const float>) {
                     stop.request_stop();
                     return Status();
                   });
  expect_error(stopped, ErrorCode::kCancelled, {});
  EXPECT_EQ(sequence->length(), 4);
  const auto last = eval_last(*engine, *sequence, std::span(tokens).subspan(4));
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(std::vector<float>(last->begin(), last->end()), last_row(expected));
}

TEST_F(EngineTest, StopBeforeTheFirstChunkEvaluatesNothing) {
  const auto engine = open({});
  const auto sequence = start(*engine);
  std::stop_source stop;
  stop.request_stop();
  expect_error(eval_last(*engine, *sequence, some_tokens(3), StepPhase::kPrompt, stop.get_token()),
               ErrorCode::kCancelled, {});
  EXPECT_EQ(sequence->length(), 0);
}

TEST_F(EngineTest, ErrorOfTheSinkComesBack) {
  const auto engine = open({.prefill_chunk = 4});
  const auto sequence = start(*engine);
  const Status failed = engine->eval(
      *sequence, some_tokens(10), {.logits = LogitsMode::kAll},
      [](int64_t, std::span<const float>) { return Status(Error(ErrorCode::kIo, "disk full")); });
  expect_error(failed, ErrorCode::kIo, {"disk full"});
  EXPECT_EQ(sequence->length(), 4);
  EXPECT_TRUE(eval_last(*engine, *sequence, some_tokens(1)).ok());
}

TEST_F(EngineTest, SequencesOfOneEngineDoNotMix) {
  const auto engine = open({.expert_cache_bytes = 0});
  const Tokens first = some_tokens(6);
  const Tokens second = {9, 9, 8, 7, 1, 2};
  const std::vector<float> expected_first = all_logits(*engine, first);
  const std::vector<float> expected_second = all_logits(*engine, second);
  const auto a = start(*engine);
  const auto b = start(*engine);
  std::vector<float> got_first;
  std::vector<float> got_second;
  for (size_t i = 0; i < first.size(); ++i) {
    const auto row_a = eval(*engine, *a, {first[i]}, LogitsMode::kLast);
    const auto row_b = eval(*engine, *b, {second[i]}, LogitsMode::kLast);
    got_first.insert(got_first.end(), row_a.begin(), row_a.end());
    got_second.insert(got_second.end(), row_b.begin(), row_b.end());
  }
  EXPECT_EQ(got_first, expected_first);
  EXPECT_EQ(got_second, expected_second);
}

TEST_F(EngineTest, TwoEnginesInOneProcessDoNotMix) {
  const testing::TempFolder other_folder;
  testing::make_tiny_model({.bits = 4}).write(other_folder.path());
  const auto other_device = testing::make_test_device({.threads = 3});
  auto other = Engine::open(other_folder.path(), *other_device, {.expert_cache_bytes = 0});
  ASSERT_TRUE(other.ok());
  const auto engine = open({.expert_cache_bytes = 0});
  const Tokens tokens = some_tokens(8);
  const std::vector<float> expected = all_logits(*engine, tokens);
  const std::vector<float> expected_other = all_logits(**other, tokens);
  EXPECT_NE(expected, expected_other);
  const auto a = start(*engine);
  const auto b = start(**other);
  std::vector<float> got;
  std::vector<float> got_other;
  for (const TokenId token : tokens) {
    const auto row = eval(*engine, *a, {token}, LogitsMode::kLast);
    const auto row_other = eval(**other, *b, {token}, LogitsMode::kLast);
    got.insert(got.end(), row.begin(), row.end());
    got_other.insert(got_other.end(), row_other.begin(), row_other.end());
  }
  EXPECT_EQ(got, expected);
  EXPECT_EQ(got_other, expected_other);
}

/// A device that can be told to be out of memory.
class FullDevice : public Device {
 public:
  explicit FullDevice(Device& inner) : inner_(inner) {}
  std::string_view name() const override { return inner_.name(); }
  std::string_view description() const override { return inner_.description(); }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    if (full) return Error(ErrorCode::kResourceExhausted, "out of memory");
    return inner_.allocate(bytes, kind);
  }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t scratch_bytes) override {
    return inner_.create_encoder(scratch_bytes);
  }
  bool full = false;

 private:
  Device& inner_;
};

TEST_F(EngineTest, MemoryThatRunsOutLeavesTheSequenceUsable) {
  FullDevice device(*device_);
  auto engine = Engine::open(folder_.path(), device, {});
  ASSERT_TRUE(engine.ok());
  const Tokens tokens = some_tokens(SequenceState::kPageTokens + 4);
  // On another engine, as memory that a sequence gives back is used again.
  const auto other = Engine::open(folder_.path(), device, {});
  ASSERT_TRUE(other.ok());
  const std::vector<float> expected = all_logits(**other, tokens);
  const auto sequence = start(**engine);
  ASSERT_TRUE(eval_last(**engine, *sequence, std::span(tokens).first(250)).ok());
  device.full = true;
  expect_error((*engine)->create_sequence(), ErrorCode::kResourceExhausted, {"out of memory"});
  expect_error(eval_last(**engine, *sequence, std::span(tokens).subspan(250)),
               ErrorCode::kResourceExhausted, {"out of memory"});
  EXPECT_EQ(sequence->length(), 250);
  device.full = false;
  const auto last = eval_last(**engine, *sequence, std::span(tokens).subspan(250));
  ASSERT_TRUE(last.ok()) << last.error().to_string();
  EXPECT_EQ(std::vector<float>(last->begin(), last->end()), last_row(expected));
}

TEST_F(EngineTest, CacheBoundBelowOneExpertIsRefused) {
  expect_error(Engine::open(folder_.path(), *device_, {.expert_cache_bytes = 100}),
               ErrorCode::kResourceExhausted, {"100 B", "one expert"});
  const uint64_t slot = open({})->memory_plan().expert_slot_bytes;
  EXPECT_EQ(open({.expert_cache_bytes = slot})->experts().capacity_bytes(), slot);
}

}  // namespace
}  // namespace moeflux
