#include "chat/tuning.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

TEST(Tuning, SetsEveryKeyAndTakesUnderscores) {
  DeviceOptions device;
  EngineOptions engine;
  DraftOptions drafts;
  const Status set = apply_tuning(
      "cpu-isa=avx2,numa=isolate,pin=on,precision=q16,reader_threads=3,expert-io=pread,lookahead="
      "off,"
      "cache-policy=lru,trust-experts=on,near-cache=1G,plan=near,prefill-chunk=64,"
      "draft=on,draft-max=8",
      {device, engine, drafts});
  ASSERT_TRUE(set.ok()) << set.error().message();
  EXPECT_EQ(device.isa, "avx2");
  EXPECT_EQ(device.numa, "isolate");
  EXPECT_TRUE(device.pin_threads);
  EXPECT_EQ(device.precision, "q16");
  EXPECT_EQ(engine.reader_threads, 3);
  EXPECT_EQ(engine.expert_io, IoMode::kPread);
  EXPECT_EQ(engine.lookahead, LookaheadMode::kOff);
  EXPECT_EQ(engine.eviction.policy, CachePolicy::kLru);
  EXPECT_FALSE(engine.check_experts);
  EXPECT_EQ(engine.near_cache_bytes, uint64_t{1} << 30);
  EXPECT_EQ(engine.plan, PlanMode::kNear);
  EXPECT_EQ(engine.prefill_chunk, 64);
  EXPECT_EQ(drafts.mode, DraftMode::kOn);
  EXPECT_EQ(drafts.tokens_max, 8);
}

TEST(Tuning, AModelThatDraftsIsAskedUnlessDraftsAreOff) {
  const auto mode_of = [](std::string_view text) {
    DeviceOptions device;
    EngineOptions engine;
    DraftOptions drafts;
    EXPECT_TRUE(apply_tuning(text, {device, engine, drafts}).ok());
    EXPECT_EQ(drafts.model, "small");
    return drafts.mode;
  };
  EXPECT_EQ(mode_of("draft-model=small"), DraftMode::kAuto);
  EXPECT_EQ(mode_of("draft-model=small,draft=on"), DraftMode::kOn);
  EXPECT_EQ(mode_of("draft=off,draft-model=small"), DraftMode::kOff);
}

TEST(Tuning, NamesTheKeyTheValueAndWhatWasExpected) {
  DeviceOptions device;
  EngineOptions engine;
  DraftOptions drafts;
  const auto fails = [&](std::string_view text, std::initializer_list<std::string_view> pieces) {
    testing::expect_error(apply_tuning(text, {device, engine, drafts}), ErrorCode::kInvalidArgument,
                          pieces);
  };
  fails("readerthreads=3", {"readerthreads", "did you mean reader-threads?"});
  fails("numa=spread", {"numa: is 'spread'", "distribute"});
  fails("pin", {"'pin' is not key=value"});
  fails("pin=yes", {"pin: is 'yes', expected on or off"});
  fails("reader-threads=0", {"reader-threads", "'0'", "1 to 1024"});
  fails("lookahead=on,cache-policy=fifo", {"cache-policy", "'fifo'", "lfu or lru"});
  fails("draft=yes", {"draft", "'yes'", "off, auto or on"});
  fails("draft-max=65", {"draft-max", "'65'", "1 to 64"});
  fails("precision=f16", {"precision", "'f16'"});
  EXPECT_TRUE(apply_tuning("", {device, engine, drafts}).ok());
}

TEST(Tuning, TheValuesShownAsDefaultsAreThose) {
  DeviceOptions device;
  EngineOptions engine;
  DraftOptions drafts;
  for (const TuningKey& key : tuning_keys()) {
    EXPECT_FALSE(key.without.empty()) << key.name;
    if (key.name == "cpu-isa") continue;  // has no name for the fastest
    EXPECT_TRUE(set_tuning(key.name, key.without, {device, engine, drafts}).ok()) << key.name;
  }
  EXPECT_EQ(device.numa, DeviceOptions().numa);
  EXPECT_FALSE(device.pin_threads);
  EXPECT_EQ(device.precision, DeviceOptions().precision);
  EXPECT_EQ(drafts.mode, DraftOptions().mode);
  EXPECT_EQ(drafts.tokens_max, DraftOptions().tokens_max);
  EXPECT_EQ(drafts.model, DraftOptions().model);
  const EngineOptions untuned;
  EXPECT_EQ(engine.reader_threads, untuned.reader_threads);
  EXPECT_EQ(engine.expert_io, untuned.expert_io);
  EXPECT_EQ(engine.lookahead, untuned.lookahead);
  EXPECT_EQ(engine.eviction.policy, untuned.eviction.policy);
  EXPECT_EQ(engine.check_experts, untuned.check_experts);
  EXPECT_EQ(engine.near_cache_bytes, untuned.near_cache_bytes);
  EXPECT_EQ(engine.plan, untuned.plan);
  EXPECT_EQ(engine.prefill_chunk, untuned.prefill_chunk);
}

TEST(Tuning, KeysAreSorted) {
  const auto keys = tuning_keys();
  EXPECT_TRUE(std::ranges::is_sorted(keys, {}, &TuningKey::name));
}

}  // namespace
}  // namespace moeflux
