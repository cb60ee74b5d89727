// Memory that runs out at any allocation of a call is an error of it, and leaves the sequence as it
// was, or marked as broken until it is mended.
#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <ostream>

#include "backend/gpu/gpu_device.h"
#include "engine/allocation_test_util.h"
#include "engine/tiny_engine_test_util.h"
#include "tests/support/eval_last.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;

struct Setting {
  const char* name;
  const char* device;
  uint64_t expert_cache_bytes;
  bool warm;                    // the engine has evaluated before: its workspaces have grown
  size_t begun = 3;             // tokens that the sequence has
  bool attention_only = false;  // a model that forgets at any position
  int64_t stride = 1;           // every so many-th allocation fails: the emulator is slow
  IoMode expert_io = IoMode::kPread;
  // A GPU has some of the model's eight experts, with a ring for a chunk's. The host has all, or
  // some where there is a drive behind both.
  uint64_t near_slots = 0;
  uint64_t far_slots = 8;

  friend void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }
};

class OutOfMemoryTest : public TinyEngineTest, public ::testing::WithParamInterface<Setting> {
 protected:
  static constexpr int64_t kChunk = 4;

  OutOfMemoryTest() {
    if (GetParam().attention_only) write_attention_model();
    device_ = testing::make_test_device({.device = GetParam().device, .threads = 1});
    if (GetParam().near_slots == 0) return;
    slot_bytes_ = TinyEngineTest::open({})->memory_plan().expert_slot_bytes;
    device_ = make_emulator_device({.seed = 1, .memory_bytes = uint64_t{1} << 40, .copy_seed = 3});
  }

  std::unique_ptr<Engine> open() {
    EngineOptions options{.expert_cache_bytes = GetParam().expert_cache_bytes,
                          .expert_io = GetParam().expert_io,
                          .reader_threads = 1,
                          .prefill_chunk = kChunk,
                          .prefix_cache_bytes = 1 << 20};
    if (GetParam().near_slots > 0) {
      options.near_cache_bytes = GetParam().near_slots * slot_bytes_;
      options.expert_cache_bytes = (GetParam().near_slots + GetParam().far_slots) * slot_bytes_;
      options.ring_bytes = 8 * slot_bytes_;
      options.placement.margin = 0.0;
    }
    auto engine = TinyEngineTest::open(options);
    if (GetParam().warm) all_logits(*engine, text_);
    return engine;
  }
  std::unique_ptr<Sequence> begun(Engine& engine) {
    auto sequence = start(engine);
    const auto begun = std::span(text_).first(GetParam().begun);
    EXPECT_TRUE(begun.empty() || eval_last(engine, *sequence, begun).ok());
    return sequence;
  }
  /// The rest of the text, from wherever the sequence is.
  std::vector<float> finish(Engine& engine, Sequence& sequence) {
    const auto done = static_cast<size_t>(sequence.length());
    EXPECT_TRUE(std::equal(sequence.tokens().begin(), sequence.tokens().end(), text_.begin()));
    const auto last = eval_last(engine, sequence, std::span(text_).subspan(done));
    if (last.ok()) return {last->begin(), last->end()};
    expect_error(last, ErrorCode::kFailedPrecondition, {"broke at token"});
    expect_error(engine.checkpoint(sequence), ErrorCode::kFailedPrecondition, {"broke at token"});
    const Status mended = engine.truncate(sequence, sequence.length());
    EXPECT_TRUE(mended.ok()) << mended.error().to_string();
    const auto again = eval_last(engine, sequence, std::span(text_).subspan(done));
    EXPECT_TRUE(again.ok());
    return again.ok() ? std::vector<float>(again->begin(), again->end()) : std::vector<float>();
  }
  struct Call {
    std::unique_ptr<Engine> engine;
    std::unique_ptr<Sequence> sequence;
    CheckpointId checkpoint{};
    std::vector<std::byte> snapshot;
  };
  Call prepared() {
    Call call;
    call.engine = open();
    call.sequence = begun(*call.engine);
    // Its state is shared.
    auto checkpoint = call.engine->checkpoint(*call.sequence);
    const std::vector<std::byte> extra(100);
    const auto shorter = start(*call.engine);
    const auto half = std::span(text_).first(GetParam().begun / 2);
    EXPECT_TRUE(half.empty() || eval_last(*call.engine, *shorter, half).ok());
    auto snapshot = call.engine->save(*shorter, extra);
    EXPECT_TRUE(checkpoint.ok() && snapshot.ok());
    call.checkpoint = *checkpoint;
    call.snapshot = std::move(snapshot).value();
    return call;
  }
  /// Calls `run` on sequences of engines in the same state, letting one allocation fail after the
  /// other, until none is reached. `check` is told how those ended that failed.
  void at_every_allocation(const std::function<Status(Call&)>& run,
                           const std::function<void(Call&, const Status&)>& check) {
    const std::vector<float> expected = last_row(all_logits(*TinyEngineTest::open({}), text_));
    for (int64_t before = 0;; before += GetParam().stride) {
      SCOPED_TRACE(before);
      Call call = prepared();
      Status done;
      {
        const FailingAllocations failing(before, 1);
        try {
          done = run(call);
        } catch (const std::bad_alloc&) {
          done = Error(ErrorCode::kResourceExhausted, "bad_alloc");
        }
      }
      if (failed_allocations() == 0) {
        EXPECT_TRUE(done.ok());
        return;
      }
      if (!done.ok()) {
        EXPECT_EQ(done.error().code(), ErrorCode::kResourceExhausted) << done.error().to_string();
        check(call, done);
      }
      ASSERT_EQ(finish(*call.engine, *call.sequence), expected);
      ASSERT_EQ(last_row(all_logits(*call.engine, text_)), expected);
    }
  }
  void eval_at_every_allocation(std::span<const TokenId> tokens) {
    int failures = 0;
    at_every_allocation(
        [&](Call& call) -> Status {
          MF_RETURN_IF_ERROR(eval_last(*call.engine, *call.sequence, tokens));
          return {};
        },
        [&](Call& call, const Status& done) {
          ++failures;
          EXPECT_NE(done.error().message(), "bad_alloc");  // it is an error, no exception
          const int64_t evaluated =
              call.sequence->length() - static_cast<int64_t>(GetParam().begun);
          EXPECT_EQ(evaluated % kChunk, 0);
        });
    EXPECT_GT(failures, 0);
  }

  const Tokens text_ = some_tokens(12);
  uint64_t slot_bytes_ = 0;
};

TEST_P(OutOfMemoryTest, EvalKeepsTheSequenceOrSaysThatItIsBroken) {
  eval_at_every_allocation(std::span(text_).subspan(GetParam().begun, 8));
}

TEST_P(OutOfMemoryTest, EvalOfOneTokenToo) {
  eval_at_every_allocation(std::span(text_).subspan(GetParam().begun, 1));
}

TEST_P(OutOfMemoryTest, WhatGoesBackLeavesTheSequenceAsItWas) {
  const std::vector<std::function<Status(Call&)>> runs = {
      [](Call& call) { return call.engine->truncate(*call.sequence, call.sequence->length() / 2); },
      [](Call& call) { return call.engine->restore(*call.sequence, call.checkpoint); },
      [](Call& call) -> Status {
        MF_RETURN_IF_ERROR(call.engine->checkpoint(*call.sequence));
        return {};
      },
      [](Call& call) -> Status {
        MF_RETURN_IF_ERROR(call.engine->fork(*call.sequence));
        return {};
      },
      [](Call& call) -> Status {
        MF_RETURN_IF_ERROR(call.engine->save(*call.sequence));
        return {};
      },
      [](Call& call) -> Status {
        MF_RETURN_IF_ERROR(call.engine->load(*call.sequence, call.snapshot));
        return {};
      },
      [](Call& call) { return call.engine->prefixes().keep(*call.sequence); },
  };
  for (size_t i = 0; i < runs.size(); ++i) {
    SCOPED_TRACE(i);
    at_every_allocation(runs[i], [&](Call& call, const Status&) {
      EXPECT_EQ(call.sequence->length(), static_cast<int64_t>(GetParam().begun));
      EXPECT_TRUE(call.engine->fork(*call.sequence).ok());  // not broken
    });
  }
}

constexpr uint64_t kRoomy = uint64_t{1} << 30;

INSTANTIATE_TEST_SUITE_P(
    Settings, OutOfMemoryTest,
    ::testing::Values(
        Setting{"ColdWithRoom", "cpu", kRoomy, false}, Setting{"WarmWithRoom", "cpu", kRoomy, true},
        Setting{"ColdWithOneSlot", "cpu", 0, false}, Setting{"WarmWithOneSlot", "cpu", 0, true},
        Setting{"WithTheBestReader", "cpu", 0, false, 3, false, 1, IoMode::kAuto},
        Setting{"Attention", "cpu", kRoomy, true, 3, true},
        Setting{"AttentionFromTheFirstToken", "cpu", kRoomy, true, 0, true},
        Setting{"Reference", "reference", 0, false},
        Setting{"Emulator", "emulator", kRoomy, false, 3, false, 13},
        Setting{"Tiers", "emulator", 0, false, 3, false, 5, IoMode::kPread, 3},
        Setting{"TiersAndDrive", "emulator", 0, false, 3, false, 5, IoMode::kPread, 3, 2}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace moeflux
