// A GPU whose memory does not hold a model's dense weights, keys and values reads what the host
// keeps over its bus, and computes what one that holds them all does, bit for bit.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/gpu/emulator/emulator.h"
#include "backend/gpu/gpu_device.h"
#include "backend/trace/trace_device.h"
#include "base/format.h"
#include "base/units.h"
#include "engine/engine.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_families.h"
#include "tests/support/golden_file.h"
#include "tests/support/quantized_copy.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

using Tokens = std::vector<TokenId>;
using Logits = std::vector<float>;

constexpr uint64_t kEnough = uint64_t{1} << 40;

std::unique_ptr<Device> open_with(uint64_t memory_bytes) {
  return make_emulator_device({.seed = 5, .matrix_units = true, .memory_bytes = memory_bytes});
}

/// A model on a GPU with so much memory.
struct World {
  std::unique_ptr<Device> device;
  std::unique_ptr<Engine> engine;

  bool opens(const std::string& model, uint64_t memory_bytes, const EngineOptions& options) {
    engine.reset();
    device = open_with(memory_bytes);
    auto opened = Engine::open(model, *device, options);
    if (!opened.ok()) {
      EXPECT_EQ(opened.error().code(), ErrorCode::kResourceExhausted) << opened.error().to_string();
      return false;
    }
    engine = std::move(opened).value();
    return true;
  }
  std::unique_ptr<Sequence> start() {
    auto sequence = engine->create_sequence();
    EXPECT_TRUE(sequence.ok());
    return std::move(sequence).value();
  }
  /// The logits of every token.
  Logits eval(Sequence& sequence, std::span<const TokenId> tokens,
              StepPhase phase = StepPhase::kPrompt) {
    Logits logits;
    const Status done = engine->eval(sequence, tokens, {.logits = LogitsMode::kAll, .phase = phase},
                                     [&](int64_t, std::span<const float> rows) {
                                       logits.insert(logits.end(), rows.begin(), rows.end());
                                       return Status();
                                     });
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().to_string());
    return logits;
  }
  uint64_t host_dense_bytes() const {
    const MemoryPlan& plan = engine->memory_plan();
    return plan.dense_bytes - plan.on_device.dense_bytes;
  }
};

Tokens text_of(size_t length) {
  Tokens tokens(length);
  for (size_t i = 0; i < length; ++i) tokens[i] = static_cast<TokenId>(7 * i % 31 + 1);
  return tokens;
}

/// The least memory, to a KiB, on which the model opens.
uint64_t least_memory(const std::string& model, const EngineOptions& options) {
  uint64_t refused = kMiB;  // the reserve
  uint64_t opens = 16 * kMiB;
  EXPECT_TRUE(World().opens(model, opens, options));
  while (opens - refused > kKiB) {
    const uint64_t middle = (opens + refused) / 2;
    (World().opens(model, middle, options) ? opens : refused) = middle;
  }
  return opens;
}

/// A model, its tokens, and their logits where everything is near.
class Subject {
 public:
  Subject(std::string model, size_t length, const EngineOptions& options)
      : model_(std::move(model)), text_(text_of(length)), options_(options) {
    World all;
    if (!all.opens(model_, kEnough, options_)) return;
    plan_ = all.engine->memory_plan();
    EXPECT_EQ(all.host_dense_bytes(), 0u);
    expected_ = all.eval(*all.start(), text_);
    EXPECT_EQ(all.engine->state_memory().far_bytes(), 0u);
    width_ = expected_.size() / length;
    count_parts(all.engine->loaded().cache_types);
    least_ = least_memory(model_, options_);
  }

  bool opens(World& world, uint64_t beyond_least) const {
    const bool opened = world.opens(model_, least_ + beyond_least, options_);
    EXPECT_TRUE(opened);
    return opened;
  }
  const std::string& model() const { return model_; }
  uint64_t least() const { return least_; }
  const MemoryPlan& plan() const { return plan_; }
  /// The first to leave the device: the table, and pages of all tokens.
  uint64_t table_bytes() const { return table_bytes_; }
  uint64_t pages_bytes() const { return pages_bytes_; }
  std::span<const TokenId> tokens(size_t from, size_t count) const {
    return std::span(text_).subspan(from, count);
  }
  Logits expected(size_t from, size_t count) const {
    const auto begin = expected_.begin() + static_cast<ptrdiff_t>(from * width_);
    return {begin, begin + static_cast<ptrdiff_t>(count * width_)};
  }
  size_t length() const { return text_.size(); }

 private:
  void count_parts(const CacheTypes& types) {
    const auto trace = make_trace_device();
    const auto counted = load_model(model_, *trace, WeightLoading::kCheckOnly);
    ASSERT_TRUE(counted.ok());
    table_bytes_ = (*counted)->dense.lookup_bytes;
    (*counted)->cache_types = types;
    for (LayerStateSpec layer : (*counted)->states()) {
      std::erase_if(layer.tensors,
                    [](const StateTensor& t) { return !t.is_per_token() || t.window > 0; });
      pages_bytes_ += SequenceState::bytes_held(layer, options_.context_length, 1);
    }
  }

  std::string model_;
  Tokens text_;
  EngineOptions options_;
  MemoryPlan plan_;
  uint64_t table_bytes_ = 0;
  uint64_t pages_bytes_ = 0;
  Logits expected_;
  size_t width_ = 0;
  uint64_t least_ = 0;
};

/// The text in chunks, the last of which is repeated, and its end token by token.
void expect_text(const Subject& subject, World& world, Sequence& sequence,
                 const std::vector<size_t>& chunks) {
  constexpr size_t kDecoded = 2;
  const size_t prompt = subject.length() - kDecoded;
  size_t calls = 0;
  for (size_t at = 0; at < subject.length();) {
    const size_t chunk = chunks[std::min(calls++, chunks.size() - 1)];
    const size_t rows = at < prompt ? std::min(chunk, prompt - at) : 1;
    ASSERT_EQ(world.eval(sequence, subject.tokens(at, rows),
                         at < prompt ? StepPhase::kPrompt : StepPhase::kDecode),
              subject.expected(at, rows))
        << "token " << at;
    at += rows;
  }
}

/// A sequence that has evaluated the text: forks, snapshots and rewinds of it, and new ones.
void expect_pasts(const Subject& subject, World& world, Sequence& sequence) {
  Engine& engine = *world.engine;
  const size_t half = subject.length() / 2;
  const auto expect_at = [&](Sequence& from, size_t position) {
    ASSERT_EQ(from.length(), static_cast<int64_t>(position));
    EXPECT_EQ(world.eval(from, subject.tokens(position, 2)), subject.expected(position, 2))
        << position;
  };
  const auto fork = engine.fork(sequence);
  ASSERT_TRUE(fork.ok());
  ASSERT_TRUE(engine.truncate(**fork, static_cast<int64_t>(half)).ok());
  const auto snapshot = engine.save(**fork);
  ASSERT_TRUE(snapshot.ok());
  expect_at(**fork, half);
  const auto checkpoint = engine.checkpoint(**fork);
  ASSERT_TRUE(checkpoint.ok());
  world.eval(**fork, text_of(3));
  ASSERT_TRUE(engine.restore(**fork, *checkpoint).ok());
  expect_at(**fork, half + 2);
  const auto loaded = world.start();
  ASSERT_TRUE(engine.load(*loaded, *snapshot).ok());
  // Both in common steps.
  StepItem items[2] = {{.sequence = loaded.get(), .tokens = subject.tokens(half, 1)},
                       {.sequence = fork->get(), .tokens = subject.tokens(half + 4, 1)}};
  Logits logits[2];
  for (size_t i = 0; i < 2; ++i) {
    items[i].options.phase = StepPhase::kDecode;
    items[i].sink = [&, i](int64_t, std::span<const float> rows) {
      logits[i].assign(rows.begin(), rows.end());
      return Status();
    };
  }
  engine.eval_step(items);
  EXPECT_EQ(logits[0], subject.expected(half, 1));
  EXPECT_EQ(logits[1], subject.expected(half + 4, 1));
  ASSERT_TRUE(engine.truncate(sequence, 1).ok());
  expect_at(sequence, 1);
}

class FarGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(FarGolden, WhatTheHostKeepsChangesNoBit) {
  const TempFolder quantized;
  const TempFolder twin;
  write_quantized_copy(golden_folder(GetParam()), quantized.path(), twin.path(), {});
  const Subject subject(quantized.path(), 20, {.context_length = 64, .prefill_chunk = 18});
  ASSERT_FALSE(HasFailure());
  struct Draw {
    uint64_t beyond_least;
    std::vector<size_t> chunks;
    bool has_pasts = false;  // of the text, in all pages far and in half of them
  };
  const uint64_t dense = subject.plan().dense_bytes;
  const uint64_t without_table = dense - subject.table_bytes();
  // Tokens one by one at the begin, behind many, and past the 16th, where rings of 8 and 16 wrap.
  const Draw draws[] = {{0, {18}, true},
                        {0, {1, 1, 12, 1, 3}},
                        {dense / 3, {5}},
                        {dense, {18}},
                        {without_table + subject.pages_bytes() / 2, {5}, true}};
  uint64_t most_dense = 0;
  uint64_t most_far = 0;
  bool some_near = false;
  for (const Draw& draw : draws) {
    World world;
    if (!subject.opens(world, draw.beyond_least)) continue;
    const auto sequence = world.start();
    expect_text(subject, world, *sequence, draw.chunks);
    const StateMemory& memory = world.engine->state_memory();
    some_near = some_near || (memory.far_bytes() > 0 && memory.near_bytes() > 0);
    most_dense = std::max(most_dense, world.host_dense_bytes());
    most_far = std::max(most_far, memory.far_bytes());
    if (draw.has_pasts) expect_pasts(subject, world, *sequence);
    ASSERT_FALSE(HasFailure()) << draw.beyond_least << " bytes beyond the least, first chunk "
                               << draw.chunks.front();
  }
  // All modules. Norms stay, and what makes gates of streams, half of this tiny model; of zaya also
  // the matrices of a convolution.
  const bool has_streams = GetParam() == "glm5_next_text" || GetParam().starts_with("deepseek_v4");
  EXPECT_GT(most_dense, dense / (GetParam() == "zaya" ? 5 : has_streams ? 3 : 2));
  // Windows stay near.
  const bool has_pages = subject.pages_bytes() > 0;
  EXPECT_EQ(most_far > 0, has_pages);
  EXPECT_EQ(some_near, has_pages);
}

INSTANTIATE_TEST_SUITE_P(All, FarGolden, ::testing::ValuesIn(asked(golden_families())),
                         [](const auto& family) { return family.param; });

class FarNetworksGolden : public ::testing::TestWithParam<std::string> {};

// However many of them the host keeps, and whoever computes them.
TEST_P(FarNetworksGolden, EverySplitOfNetworksHasTheSameBits) {
  const TempFolder quantized;
  const TempFolder twin;
  write_quantized_copy(golden_folder(GetParam()), quantized.path(), twin.path(), {});
  const auto cpu = make_cpu_device({.threads = 2, .precision = Precision::kQ16});
  ASSERT_TRUE(cpu.ok());
  EngineOptions options{.context_length = 64, .prefill_chunk = 18};
  const Subject subject(quantized.path(), 10, options);
  ASSERT_FALSE(HasFailure());
  options.helper = cpu->get();
  const uint64_t dense = subject.plan().dense_bytes;
  uint64_t helped = 0;
  uint64_t copied = 0;
  for (const uint64_t beyond : {uint64_t{0}, dense / 3, 2 * dense / 3}) {
    World world;
    ASSERT_TRUE(world.opens(subject.model(), subject.least() + beyond, options)) << beyond;
    for (const PlanMode plan : {PlanMode::kNear, PlanMode::kHelper, PlanMode::kShared}) {
      ASSERT_TRUE(world.engine->set_plan(plan).ok());
      const auto sequence = world.start();
      expect_text(subject, world, *sequence, {3});
      ASSERT_FALSE(HasFailure()) << beyond << " bytes beyond the least, " << plan_name(plan);
    }
    const ExpertStats stats = world.engine->expert_stats();
    helped += stats.helped_steps;
    copied += stats.bus_bytes;
  }
  // Networks whose gate and up are one matrix are read over the bus.
  const bool is_apart = !GetParam().starts_with("phi");
  EXPECT_EQ(helped > 0, is_apart);
  EXPECT_EQ(copied > 0, is_apart);
}

INSTANTIATE_TEST_SUITE_P(All, FarNetworksGolden,
                         ::testing::ValuesIn(dense_families(asked(golden_families()))),
                         [](const auto& family) { return family.param; });

// Several pages of a text, some of which are far.
TEST(FarPages, OfALongTextChangeNoBit) {
  const Subject subject(tests_directory() + "/golden/models/gpt_oss", 300,
                        {.context_length = 512, .prefill_chunk = 100});
  ASSERT_FALSE(::testing::Test::HasFailure());
  for (const uint64_t share : {0, 1}) {
    World world;
    ASSERT_TRUE(subject.opens(world, subject.plan().dense_bytes - subject.table_bytes() +
                                         share * subject.pages_bytes() / 4));
    const auto sequence = world.start();
    expect_text(subject, world, *sequence, {100});
    EXPECT_GT(world.engine->state_memory().far_bytes(), 0u) << share;
    expect_pasts(subject, world, *sequence);
  }
}

TEST(SmallDevice, GivesUpNearExpertsThenDenseWeightsThenRefusesByName) {
  const EngineOptions options = {.context_length = 64, .prefill_chunk = 30};
  const Subject subject(tests_directory() + "/golden/models/olmoe", 8, options);
  ASSERT_FALSE(::testing::Test::HasFailure());
  const MemoryPlan& all = subject.plan();
  World world;
  // All experts but a few and everything else are near.
  ASSERT_TRUE(subject.opens(world, all.dense_bytes + all.state_bytes + kKiB));
  EXPECT_EQ(world.host_dense_bytes(), 0u);
  EXPECT_EQ(world.engine->memory_plan().on_device.state_bytes, all.state_bytes);
  EXPECT_EQ(describe_host_share(world.engine->memory_plan()), "");
  uint64_t before = 0;
  for (const uint64_t share : {3, 2, 1, 0}) {
    ASSERT_TRUE(subject.opens(world, share * all.dense_bytes / 4));
    EXPECT_GT(world.host_dense_bytes(), before) << share;
    before = world.host_dense_bytes();
    EXPECT_NE(describe_host_share(world.engine->memory_plan()), "");
  }
  const auto device = open_with(subject.least() - 8 * kKiB);
  expect_error(Engine::open(subject.model(), *device, options), ErrorCode::kResourceExhausted,
               {"device emulator", format_bytes(subject.least() - 8 * kKiB), "expected at least",
                "for a step", "for experts"});
}

// Beside a resident model it is what the GPU has left; beside experts that fill it, the plan's.
TEST(SmallDevice, StatesMayTakeWhatTheDeviceHasLeft) {
  const std::string model = tests_directory() + "/golden/models/olmoe";
  World roomy;
  ASSERT_TRUE(roomy.opens(model, kEnough, {.context_length = 64}));
  EXPECT_GT(roomy.engine->state_room_bytes(), kEnough / 2);
  World full;
  ASSERT_TRUE(full.opens(model, kEnough, {.context_length = 64, .near_cache_bytes = kEnough}));
  EXPECT_GE(full.engine->state_room_bytes(), full.engine->memory_plan().context_bytes);
}

// Memory that was free when the engine was opened.
TEST(SmallDevice, ADeviceThatOthersFillLaterStillTakesNewPages) {
  const std::string model = tests_directory() + "/golden/models/olmoe";
  World world;
  ASSERT_TRUE(world.opens(model, 32 * kMiB, {.context_length = 64}));
  const auto first = world.start();
  const Logits expected = world.eval(*first, text_of(6));
  EXPECT_EQ(world.engine->state_memory().far_bytes(), 0u);
  const auto taken = world.device->allocate(*world.device->free_bytes(), MemoryKind::kDevice);
  ASSERT_TRUE(taken.ok());
  const auto second = world.start();
  EXPECT_EQ(world.eval(*second, text_of(6)), expected);
  EXPECT_GT(world.engine->state_memory().far_bytes(), 0u);
}

}  // namespace
}  // namespace moeflux::testing
