// Failures while experts lie in several memories: the step fails with its error, memory that is not
// there is done without, and what comes after has the same bits.
#include <gtest/gtest.h>

#include <filesystem>
#include <new>

#include "tests/golden/tiered_test_util.h"
#include "tests/support/expect_error.h"

namespace moeflux::testing {
namespace {

class TieredFailures : public ::testing::Test {
 protected:
  static constexpr Tiers kTiered = {.near_slots = 6, .ring_slots = 32, .margin = 0.0};
  static constexpr Tiers kStreamed = {.near_slots = 6, .far_slots = 9, .margin = 0.0};

  std::unique_ptr<Engine> open(Device& device, const EngineOptions& options) {
    auto engine = Engine::open(model_.path(), device, options);
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
    return engine.ok() ? std::move(engine).value() : nullptr;
  }
  void expect_resident_bits(Engine& engine, size_t chunk = SIZE_MAX) {
    const auto logits = evaluate_text(engine, chunk);
    ASSERT_TRUE(logits.ok()) << logits.error().to_string();
    EXPECT_EQ(*logits, model_.resident());
  }
  static Status eval_prompt(Engine& engine, const EvalOptions& options) {
    const auto sequence = engine.create_sequence();
    EXPECT_TRUE(sequence.ok());
    const std::vector<TokenId> tokens(18, TokenId{3});
    return engine.eval(**sequence, tokens, options, {});
  }
  static std::unique_ptr<Device> gpu(const std::function<void(gpu::EmulatorOptions&)>& change) {
    gpu::EmulatorOptions options = TieredModel::kGpu;
    options.copy_seed = 11;
    change(options);
    return make_emulator_device(options);
  }

  TieredModel model_{"olmoe"};
  const std::unique_ptr<Device> device_ = gpu([](gpu::EmulatorOptions&) {});
  std::vector<std::string> lines_;
};

// --- Steps that end early ---

TEST_F(TieredFailures, ARequestThatIsStoppedLeavesTheNextOneRight) {
  for (const Tiers& tiers : {kTiered, kStreamed}) {
    EngineOptions options = model_.options(tiers);
    options.prefill_chunk = 9;
    const auto engine = open(*device_, options);
    ASSERT_NE(engine, nullptr);
    for (int i = 0; i < 3; ++i) {
      expect_error(eval_prompt(*engine, {.progress = [](int64_t) { return false; }}),
                   ErrorCode::kCancelled, {});
      expect_resident_bits(*engine);
    }
  }
}

/// Has no memory at a layer's end.
class NoMemory : public HiddenObserver {
 public:
  explicit NoMemory(int64_t layer) : layer_(layer) {}
  void hidden_state(Encoder&, int64_t layer, Tensor) override {
    if (layer == layer_) throw std::bad_alloc();
  }

 private:
  int64_t layer_;
};

// The ring's copies are layers ahead then, and nobody takes what they bring: with two waves some go
// where the next token's experts land.
TEST_F(TieredFailures, AStepThatEndsBetweenLayersLeavesTheNextOneRight) {
  Tiers narrow = kTiered;
  narrow.ring_slots = 16;
  for (const Tiers& tiers : {kTiered, narrow, kStreamed}) {
    const auto engine = open(*device_, model_.options(tiers));
    ASSERT_NE(engine, nullptr);
    for (const int64_t layer : {0, 1, 2}) {
      NoMemory observer(layer);
      expect_error(eval_prompt(*engine, {.observer = &observer}), ErrorCode::kResourceExhausted,
                   {"out of memory"});
      expect_resident_bits(*engine, layer == 0 ? SIZE_MAX : 3);
    }
  }
}

// As any error of a GPU it ends all work of its encoder.
TEST_F(TieredFailures, ACopyThatFailsInTheRingEndsEveryStepWithItsError) {
  for (const uint64_t failing : {1, 9, 30}) {
    const auto device = gpu([&](gpu::EmulatorOptions& o) { o.failing_copy = failing; });
    const auto engine = open(*device, model_.options({.near_slots = 0, .ring_slots = 32}));
    ASSERT_NE(engine, nullptr);
    for (int i = 0; i < 2; ++i) {
      expect_error(eval_prompt(*engine, {}), ErrorCode::kIo,
                   {"copy " + std::to_string(failing) + " fails"});
    }
  }
}

TEST_F(TieredFailures, AReadThatFailsLeavesTheNextRequestRight) {
  const std::string file = model_.path() + "/model.safetensors";
  const std::string whole = read_bytes(file);
  const auto engine = open(*device_, model_.options(kStreamed));
  ASSERT_NE(engine, nullptr);
  for (int i = 0; i < 2; ++i) {
    expect_resident_bits(*engine);
    std::filesystem::resize_file(file, 4096);
    expect_error(evaluate_text(*engine, SIZE_MAX), ErrorCode::kIo, {"expert ", file});
    write_bytes(file, whole);
  }
  expect_resident_bits(*engine);
  EXPECT_GT(engine->expert_stats().promotions, 0u);
}

// Pages that are pinned cannot be given back, and every expert's place in the host's memory is what
// the table falls back on.
TEST_F(TieredFailures, AHostThatIsShortOfMemoryGetsNoneAndChangesNothing) {
  for (const Tiers& tiers : {kTiered, kStreamed}) {
    HostMemory memory = {.total_bytes = kGiB, .available_bytes = kGiB};
    EngineOptions options = model_.options(tiers);
    options.read_memory = [&] { return memory; };
    options.memory_interval = std::chrono::milliseconds(0);
    const auto engine = open(*device_, options);
    ASSERT_NE(engine, nullptr);
    const uint64_t capacity = engine->experts().capacity_bytes();
    memory.available_bytes = 0;
    expect_resident_bits(*engine);
    EXPECT_EQ(engine->experts().capacity_bytes(), capacity);
  }
}

// --- Memory that is not there ---

class TieredMemory : public TieredFailures {
 protected:
  static constexpr uint64_t kOwnBytes = 64 * kMiB;

  EngineOptions options(const Tiers& tiers) {
    EngineOptions options = model_.options(tiers);
    options.on_warning = [this](const std::string& line) { lines_.push_back(line); };
    return options;
  }
  /// The least memory of its own, to a slot, with which a device does it.
  uint64_t least_own_bytes(const std::function<bool(Device&)>& does) {
    uint64_t too_few = 0;
    uint64_t enough = kOwnBytes;
    while (enough - too_few > model_.slot_bytes() / 4) {
      const uint64_t bytes = (too_few + enough) / 2;
      const auto device = gpu([&](gpu::EmulatorOptions& o) { o.own_bytes_max = bytes; });
      (does(*device) ? enough : too_few) = bytes;
    }
    return enough;
  }
};

TEST_F(TieredMemory, ThatADeviceLacksIsDoneWithoutAndSaid) {
  const uint64_t least = least_own_bytes(
      [&](Device& device) { return Engine::open(model_.path(), device, model_.options({})).ok(); });
  // Another program has the rest while the model is opened.
  const auto device = gpu([](gpu::EmulatorOptions& o) { o.own_bytes_max = kOwnBytes; });
  auto others = device->allocate(kOwnBytes - least - 2 * model_.slot_bytes(), MemoryKind::kDevice);
  ASSERT_TRUE(others.ok());
  const auto engine = open(*device, options({.near_slots = 24, .ring_slots = 32}));
  ASSERT_NE(engine, nullptr);
  others->reset();
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_NE(lines_[0].find("ring of a prompt's experts: 0 B instead of"), std::string::npos)
      << lines_[0];
  EXPECT_NE(lines_[1].find("near cache: 0 B instead of"), std::string::npos) << lines_[1];
  EXPECT_NE(lines_[1].find("cannot allocate"), std::string::npos) << lines_[1];
  expect_resident_bits(*engine);
  EXPECT_EQ(engine->experts().capacity_bytes(), model_.num_slots() * model_.slot_bytes());
}

TEST_F(TieredMemory, ThatIsThereIsTakenWithoutAWord) {
  const auto engine = open(*device_, options(kTiered));
  ASSERT_NE(engine, nullptr);
  expect_resident_bits(*engine);
  EXPECT_TRUE(lines_.empty());
  EXPECT_GT(engine->expert_stats().near_hits, 0u);
}

TEST_F(TieredMemory, BelowTheLeastIsRefusedByName) {
  const uint64_t enough = least_own_bytes([&](Device& device) {
    return Engine::open(model_.path(), device, options({.near_slots = 24, .ring_slots = 32})).ok();
  });
  const uint64_t bytes = enough - model_.slot_bytes() / 2;
  const auto device = gpu([&](gpu::EmulatorOptions& o) { o.own_bytes_max = bytes; });
  expect_error(Engine::open(model_.path(), *device, options({.near_slots = 24, .ring_slots = 32})),
               ErrorCode::kResourceExhausted,
               {"room for the 2 experts of a token", "cannot allocate"});
}

TEST_F(TieredMemory, OfTheHostThatCannotBePinnedComesFromTheDrive) {
  const auto device =
      gpu([&](gpu::EmulatorOptions& o) { o.host_bytes_max = 20 * model_.slot_bytes(); });
  const auto engine = open(*device, options(kTiered));
  ASSERT_NE(engine, nullptr);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find("the others come from the drive"), std::string::npos) << lines_[0];
  EXPECT_NE(lines_[0].find("cannot allocate"), std::string::npos) << lines_[0];
  EXPECT_TRUE(engine->memory_plan().streams());
  EXPECT_EQ(engine->experts().capacity_bytes(), model_.num_slots() / 2 * model_.slot_bytes());
  expect_resident_bits(*engine);
  EXPECT_GT(engine->expert_stats().misses, 0u);
  EXPECT_GT(engine->expert_stats().near_hits, 0u);
}

TEST_F(TieredMemory, OfTheHostIsUsedHoweverLittleCanBePinned) {
  const auto device =
      gpu([&](gpu::EmulatorOptions& o) { o.host_bytes_max = 3 * model_.slot_bytes(); });
  const auto engine = open(*device, options(kTiered));
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(lines_.size(), 2u);
  EXPECT_EQ(engine->experts().capacity_bytes(), 2 * model_.slot_bytes());
  expect_resident_bits(*engine);

  const auto none =
      gpu([&](gpu::EmulatorOptions& o) { o.host_bytes_max = model_.slot_bytes() / 2; });
  expect_error(Engine::open(model_.path(), *none, options(kTiered)), ErrorCode::kResourceExhausted,
               {"cannot allocate"});
}

}  // namespace
}  // namespace moeflux::testing
