// A checkpoint that becomes unreadable under a running engine: the step fails, the sequence is
// broken and says so, and the engine goes on once the file is whole again.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/tiny_engine_test_util.h"
#include "tests/support/eval_last.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;

class ReadErrorTest : public TinyEngineTest {
 protected:
  std::string weights() const { return folder_ / "model.safetensors"; }
  /// Experts come before most other tensors in the file: half of it has only some of them.
  void cut_in_half() { std::filesystem::resize_file(weights(), whole_.size() / 2); }
  /// In place: the engine's open file sees the bytes again.
  void restore() { testing::write_bytes(weights(), whole_); }

  std::string whole_ = testing::read_bytes(weights());
};

TEST_F(ReadErrorTest, BreaksTheSequenceAndNotTheEngine) {
  const auto engine = open({.expert_cache_bytes = 0});
  const Tokens tokens = some_tokens(12);
  const std::vector<float> expected = all_logits(*engine, tokens);
  const auto sequence = start(*engine);
  ASSERT_TRUE(eval_last(*engine, *sequence, std::span(tokens).first(3)).ok());

  cut_in_half();
  expect_error(eval_last(*engine, *sequence, std::span(tokens).subspan(3)), ErrorCode::kIo,
               {"layer ", "expert ", weights()});
  EXPECT_EQ(sequence->length(), 3);
  for (int i = 0; i < 2; ++i) {
    expect_error(eval_last(*engine, *sequence, some_tokens(1)), ErrorCode::kFailedPrecondition,
                 {"broke at token 3", "start a new one"});
  }
  expect_error(eval_last(*engine, *start(*engine), tokens), ErrorCode::kIo, {"expert "});

  restore();
  expect_error(eval_last(*engine, *sequence, some_tokens(1)), ErrorCode::kFailedPrecondition, {});
  EXPECT_EQ(all_logits(*engine, tokens), expected);
}

TEST_F(ReadErrorTest, CachedExpertsNeedNoFile) {
  const auto engine = open({.expert_cache_bytes = uint64_t{1} << 30});
  const Tokens tokens = some_tokens(12);
  const std::vector<float> expected = all_logits(*engine, tokens);
  std::filesystem::resize_file(weights(), 0);
  EXPECT_EQ(all_logits(*engine, tokens), expected);
}

TEST_F(ReadErrorTest, FileCutBeforeOpeningIsRefused) {
  cut_in_half();
  expect_error(Engine::open(folder_.path(), *device_, {}), ErrorCode::kCorruption,
               {"model.safetensors"});
}

}  // namespace
}  // namespace moeflux
