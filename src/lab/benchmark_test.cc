// Synthetic models run, and what is measured about them adds up.
#include "lab/benchmark.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/gpu/gpu_device.h"
#include "backend/trace/trace_device.h"
#include "convert/random/synthetic_model.h"
#include "lab/traffic.h"
#include "plan/memory_bandwidth.h"
#include "plan/model_sizes.h"
#include "tests/support/expect_error.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

constexpr int64_t kTinyVocab = 512;

/// The run of one plan.
Result<BenchmarkRun> run_benchmark(Engine& engine, const BenchmarkTest& test,
                                   const BenchmarkOptions& options) {
  constexpr PlanMode kPlans[] = {PlanMode::kAuto};
  std::unique_ptr<Sequence> past;
  MF_ASSIGN_OR_RETURN(auto runs, run_benchmark_in_turn(engine, test, options, kPlans, past));
  return std::move(runs.front());
}

class BenchmarkTestCase : public ::testing::Test {
 protected:
  void write(const SyntheticModelOptions& options, std::string_view shape = "tiny") {
    const auto model = make_synthetic_model(shape, options);
    ASSERT_TRUE(model.ok());
    const Status written =
        write_synthetic(*model, {.directory = folder_.path(), .seed = 1, .threads = 1});
    ASSERT_TRUE(written.ok()) << written.error().to_string();
  }
  std::unique_ptr<Engine> open(const EngineOptions& options) {
    auto engine = Engine::open(folder_.path(), *device_, options);
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
    return std::move(engine).value();
  }
  static std::vector<TokenId> tokens(int64_t count) {
    std::vector<TokenId> ids;
    for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(i * 191 % kTinyVocab));
    return ids;
  }

  testing::TempFolder folder_;
  std::unique_ptr<Device> device_ = testing::make_test_device({});
};

/// Has memory of its own, and counts who asks how much of it is left.
class CountingDevice : public Device {
 public:
  explicit CountingDevice(Device& inner) : inner_(inner) {}
  std::string_view name() const override { return inner_.name(); }
  std::string_view description() const override { return inner_.description(); }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    return inner_.allocate(bytes, kind);
  }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t scratch_bytes) override {
    return inner_.create_encoder(scratch_bytes);
  }
  std::optional<uint64_t> free_bytes() const override {
    ++asked_;
    return uint64_t{1} << 40;
  }
  int asked() const { return asked_; }

 private:
  Device& inner_;
  mutable int asked_ = 0;
};

TEST_F(BenchmarkTestCase, NoTokenAsksHowMuchMemoryIsLeft) {
  write({});
  CountingDevice device(*device_);
  auto engine = Engine::open(folder_.path(), device, {});
  ASSERT_TRUE(engine.ok()) << engine.error().to_string();
  EXPECT_TRUE((*engine)->state_memory().is_bounded());
  const int before = device.asked();
  const auto run = run_benchmark(**engine, {.n_gen = 5}, {.repetitions = 1});
  ASSERT_TRUE(run.ok()) << run.error().to_string();
  EXPECT_EQ(device.asked(), before);
}

struct Written {
  std::string_view shape;
  SyntheticModelOptions options;
};

TEST_F(BenchmarkTestCase, SyntheticModelsRunAlikeOnReferenceAndCpu) {
  const SyntheticModelOptions eight_bits{.num_layers = 3, .bits = 8};
  for (const auto& [shape, options] : std::initializer_list<Written>{{"tiny", {}},
                                                                     {"tiny", eight_bits},
                                                                     {"tiny", {.group_size = 128}},
                                                                     {"tiny", {.group_size = 32}},
                                                                     {"tiny-latent", {}},
                                                                     {"tiny-latent", eight_bits}}) {
    write(options, shape);
    const auto cpu = testing::run_model(folder_.path(), tokens(16), {});
    const auto reference = testing::run_model(folder_.path(), tokens(16), {.device = "reference"});
    ASSERT_EQ(cpu.logits.size(), reference.logits.size());
    ASSERT_EQ(cpu.logits.size(), static_cast<size_t>(16 * kTinyVocab));
    double squares = 0.0;
    for (size_t i = 0; i < cpu.logits.size(); ++i) {
      ASSERT_TRUE(std::isfinite(cpu.logits[i]));
      ASSERT_NEAR(cpu.logits[i], reference.logits[i], 0.01);
      squares += static_cast<double>(cpu.logits[i]) * cpu.logits[i];
    }
    // A head of unit gain over a normalised state: logits of about one.
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(cpu.logits.size())), 1.0, 0.5);
  }
}

TEST_F(BenchmarkTestCase, SyntheticTokensSpreadOverTheExperts) {
  write({});
  const auto engine = open({.expert_cache_bytes = uint64_t{1} << 30});
  const auto sequence = engine->create_sequence();
  ASSERT_TRUE(sequence.ok());
  const Status done = engine->eval(**sequence, tokens(64), {.logits = LogitsMode::kNone},
                                   [](int64_t, std::span<const float>) { return Status(); });
  ASSERT_TRUE(done.ok());
  // 64 tokens of 4 in 32 experts: uniform routing leaves each unused with (28/32)^64 = 0.0002.
  EXPECT_GE(engine->expert_stats().misses, 4u * 32u * 95 / 100);
  // 12 tokens: (28/32)^12 = 0.20 unused, so 25.6 of 32 in use; routing that favours some experts
  // uses fewer.
  const auto other = engine->create_sequence();
  ASSERT_TRUE(other.ok());
  const ExpertStats before = engine->expert_stats();
  ASSERT_TRUE(engine
                  ->eval(**other, tokens(12), {.logits = LogitsMode::kNone},
                         [](int64_t, std::span<const float>) { return Status(); })
                  .ok());
  const ExpertStats used = engine->expert_stats() - before;
  EXPECT_NEAR(static_cast<double>(used.hits + used.misses) / 4.0, 25.6, 3.0);
}

TEST_F(BenchmarkTestCase, CountsTheTimedTokensOfCountedRepetitionsOnly) {
  write({});
  const auto engine = open({.context_length = 64, .expert_cache_bytes = uint64_t{1} << 30});
  int finished = 0;
  const auto run =
      run_benchmark(*engine, {.n_gen = 5, .n_depth = 20},
                    {.repetitions = 3, .warm_ups = 2, .progress = [&](int n) { finished = n; }});
  ASSERT_TRUE(run.ok()) << run.error().to_string();
  EXPECT_EQ(finished, 5);
  EXPECT_EQ(run->samples_ns.size(), 3u);
  for (const uint64_t ns : run->samples_ns) EXPECT_GT(ns, 0u);
  // Each token asks for 4 experts in each of 4 layers.
  EXPECT_EQ(run->experts.hits + run->experts.misses, 3u * 5u * 4u * 4u);
}

TEST_F(BenchmarkTestCase, SequencesInCommonAreTimedApartFromTheirTurns) {
  write({});
  const auto engine = open({.context_length = 64, .expert_cache_bytes = uint64_t{1} << 30});
  const BenchmarkTest test{.n_gen = 5, .n_depth = 20, .n_parallel = 3};
  EXPECT_EQ(test.tokens(), 15);
  EXPECT_EQ(test.context(), 32);
  const std::vector<TokenId> text = {7};
  const auto run = run_benchmark(*engine, test, {.repetitions = 2, .text = text});
  ASSERT_TRUE(run.ok()) << run.error().to_string();
  EXPECT_EQ(run->samples_ns.size(), 2u);
  EXPECT_EQ(run->turns_ns.size(), 2u);
  // The same token for all three: a layer's lookups are those of one, and neither turns nor the
  // first round counts.
  EXPECT_EQ(run->experts.hits + run->experts.misses, 2u * 5u * 4u * 4u);
}

TEST_F(BenchmarkTestCase, ManySequencesTakeEightTurnsARound) {
  write({});
  const auto engine =
      open({.context_length = 64, .expert_cache_bytes = uint64_t{1} << 30, .step_sequences = 20});
  const std::vector<TokenId> text = {7};
  const ExpertStats before = engine->expert_stats();
  const auto run = run_benchmark(*engine, {.n_gen = 4, .n_parallel = 20},
                                 {.repetitions = 1, .warm_ups = 0, .text = text});
  ASSERT_TRUE(run.ok()) << run.error().to_string();
  const ExpertStats used = engine->expert_stats() - before;
  // Five rounds of a common step and eight turns, each with 4 experts in 4 layers. Waves of a wide
  // step may ask for one twice.
  EXPECT_EQ((used.hits + used.misses) / (4u * 4u), 5u * (1u + 8u));
  EXPECT_GT(run->turns_ns.front(), 0u);
}

TEST_F(BenchmarkTestCase, DepthIsEvaluatedOnceForAllSequences) {
  write({});
  const auto engine = open({.context_length = 64, .expert_cache_bytes = uint64_t{1} << 30});
  const std::vector<TokenId> text = {7};
  const auto lookups = [&](int64_t sequences) {
    const ExpertStats before = engine->expert_stats();
    const auto run = run_benchmark(*engine, {.n_gen = 1, .n_depth = 20, .n_parallel = sequences},
                                   {.repetitions = 1, .warm_ups = 0, .text = text});
    EXPECT_TRUE(run.ok()) << (run.ok() ? "" : run.error().to_string());
    const ExpertStats used = engine->expert_stats() - before;
    return used.hits + used.misses;
  };
  // The same token throughout: two more sequences have two more turns in each of two rounds, of 4
  // experts in 4 layers.
  EXPECT_EQ(lookups(3), lookups(1) + 2u * 2u * 4u * 4u);
}

TEST_F(BenchmarkTestCase, DepthIsEvaluatedOnceForAllRepetitionsAndTests) {
  write({});
  const auto engine = open({.context_length = 64, .expert_cache_bytes = uint64_t{1} << 30});
  const std::vector<TokenId> text = {7};
  std::unique_ptr<Sequence> past;
  const auto lookups = [&](int64_t depth, int repetitions) {
    constexpr PlanMode kPlans[] = {PlanMode::kAuto};
    const ExpertStats before = engine->expert_stats();
    const auto runs = run_benchmark_in_turn(
        *engine, {.n_prompt = 1, .n_gen = 2, .n_depth = depth},
        {.repetitions = repetitions, .warm_ups = 1, .text = text}, kPlans, past);
    EXPECT_TRUE(runs.ok()) << (runs.ok() ? "" : runs.error().to_string());
    const ExpertStats used = engine->expert_stats() - before;
    return (used.hits + used.misses) / (4u * 4u);  // 4 experts in each of 4 layers
  };
  // The same token throughout: a repetition has a step for its prompt and two for its tokens.
  EXPECT_EQ(lookups(20, 3), 1u + 4u * 3u);
  EXPECT_EQ(lookups(20, 1), 2u * 3u);       // behind the same tokens
  EXPECT_EQ(lookups(30, 1), 1u + 2u * 3u);  // behind ten more
  EXPECT_EQ(lookups(10, 1), 1u + 2u * 3u);  // a past does not become shorter
  EXPECT_EQ(past->length(), 10);
  EXPECT_EQ(lookups(0, 1), 2u * 3u);
  EXPECT_EQ(past, nullptr);
}

TEST_F(BenchmarkTestCase, TakesTokensFromATextAgainAndAgain) {
  write({});
  const auto engine = open({.context_length = 64, .expert_cache_bytes = uint64_t{1} << 30});
  const std::vector<TokenId> text = {7};
  const auto run = run_benchmark(*engine, {.n_prompt = 1}, {.repetitions = 2, .text = text});
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->experts.misses, 0u);  // the same token every time: the warm-up read its experts
  EXPECT_EQ(run->experts.hits, 2u * 4u * 4u);
}

TEST_F(BenchmarkTestCase, TestsBeyondTheContextFail) {
  write({});
  const auto engine = open({.context_length = 16});
  testing::expect_error(run_benchmark(*engine, {.n_prompt = 10, .n_depth = 10}, {}),
                        ErrorCode::kResourceExhausted, {"context of 16"});
}

TEST_F(BenchmarkTestCase, TrafficIsDenseWeightsExpertsAndState) {
  write({});
  const auto trace = make_trace_device();
  const auto model = load_model(folder_.path(), *trace, WeightLoading::kCheckOnly);
  ASSERT_TRUE(model.ok());
  BenchmarkRun run{.samples_ns = {1, 1}};
  run.experts.hits = 30;
  run.experts.misses = 2;  // of two repetitions of one token: 16 lookups each
  const auto one = traffic_per_token(**model, {.n_gen = 1}, 512, run);
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->expert_bytes, 16.0 * 3 * 128 * 128 * 0.5625);
  EXPECT_GT(one->dense_bytes, 0.0);
  EXPECT_LT(one->dense_bytes, static_cast<double>((*model)->dense.bytes));  // one embedding row
  // Ten tokens later two attention layers have ten more keys and values of 2 heads of 32.
  const auto deep = traffic_per_token(**model, {.n_gen = 1, .n_depth = 10}, 512, run);
  ASSERT_TRUE(deep.ok());
  EXPECT_EQ(deep->dense_bytes, one->dense_bytes);
  EXPECT_GT(deep->state_bytes, one->state_bytes);
  EXPECT_EQ(std::fmod(deep->state_bytes - one->state_bytes, 2.0 * 10 * 2 * 2 * 32), 0.0);
  // A prompt reads the weights once a chunk.
  const auto whole = traffic_per_token(**model, {.n_prompt = 64}, 64, run);
  const auto halves = traffic_per_token(**model, {.n_prompt = 64}, 32, run);
  ASSERT_TRUE(whole.ok() && halves.ok());
  EXPECT_LT(whole->dense_bytes, 0.1 * one->dense_bytes);
  EXPECT_GT(halves->dense_bytes, 1.5 * whole->dense_bytes);
}

TEST_F(BenchmarkTestCase, ExpertsThatNobodyCountedAreTakenToBeSpreadEvenly) {
  write({});
  const auto trace = make_trace_device();
  const auto model = load_model(folder_.path(), *trace, WeightLoading::kCheckOnly);
  ASSERT_TRUE(model.ok());
  const double expert = 3 * 128 * 128 * 0.5625;
  const BenchmarkRun run{.samples_ns = {1, 1}};
  // 4 of 32 experts in each of 4 layers, whatever comes before.
  const auto tokens = traffic_per_token(**model, {.n_gen = 3, .n_depth = 5}, 512, run);
  ASSERT_TRUE(tokens.ok());
  EXPECT_DOUBLE_EQ(tokens->expert_bytes, 16 * expert);
  // Two tokens leave an expert unused with (28/32)^2; a chunk reads each of the others once.
  const auto prompt = traffic_per_token(**model, {.n_prompt = 4}, 2, run);
  ASSERT_TRUE(prompt.ok());
  EXPECT_DOUBLE_EQ(prompt->expert_bytes, 4 * 32 * (1.0 - 28.0 * 28 / (32 * 32)) * expert * 2 / 4);
}

TEST_F(BenchmarkTestCase, ExpertsThatNobodyCountedAreThoseOfForcedRoutes) {
  write({});
  const auto trace = make_trace_device();
  const auto model = load_model(folder_.path(), *trace, WeightLoading::kCheckOnly);
  ASSERT_TRUE(model.ok());
  const auto routes = RouteTrace::parse(
      "# route_trace v1\n# model=m arch=a n_layer=1 n_expert=32 n_expert_used=4\n"
      "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n"
      "0,1,0,0,0,0,1,1,0\n0,1,0,0,1,1,1,1,0\n0,1,0,0,2,2,1,1,0\n0,1,0,0,3,3,1,1,0\n"
      "0,1,1,0,0,2,1,1,0\n0,1,1,0,1,3,1,1,0\n0,1,1,0,2,4,1,1,0\n0,1,1,0,3,5,1,1,0\n");
  ASSERT_TRUE(routes.ok()) << routes.error().to_string();
  const double expert = 3 * 128 * 128 * 0.5625;
  const BenchmarkRun run{.samples_ns = {1}};
  // Two texts choose 0 to 3 and 2 to 5: six experts in each of 4 layers.
  const auto two = traffic_per_token(**model, {.n_gen = 3, .n_parallel = 2}, 512, run, &*routes);
  ASSERT_TRUE(two.ok());
  EXPECT_DOUBLE_EQ(two->expert_bytes, 4 * 6 * expert / 2);
  const auto one = traffic_per_token(**model, {.n_gen = 3}, 512, run, &*routes);
  ASSERT_TRUE(one.ok());
  EXPECT_DOUBLE_EQ(one->expert_bytes, 4 * 4 * expert);
  // States of two texts, each as one alone has it after twice as many tokens.
  EXPECT_GT(two->state_bytes, one->state_bytes);
}

TEST_F(BenchmarkTestCase, ParametersAreThoseOfDenseWeightsAndAllExperts) {
  write({.num_layers = 1});
  const auto trace = make_trace_device();
  const auto model = load_model(folder_.path(), *trace, WeightLoading::kCheckOnly);
  ASSERT_TRUE(model.ok());
  const uint64_t experts = 32u * 3 * 128 * 128;
  const uint64_t embeddings = 2u * 512 * 128;
  EXPECT_GT(measure_model(**model).parameters, experts + embeddings);
  EXPECT_LT(measure_model(**model).parameters, experts + embeddings + 200'000);
}

TEST(MemoryBandwidth, IsMeasuredOnASmallBuffer) {
  const auto device = testing::make_test_device({});
  const auto speed = measure_read_bandwidth(*device, {.buffer_bytes = 1 << 20, .seconds = 0.0});
  ASSERT_TRUE(speed.ok());
  EXPECT_GT(*speed, 0.0);
}

TEST(MemoryBandwidth, OfABusIsThatOfCopiesBesideWork) {
  const auto emulator = make_emulator_device({});
  const auto speed = measure_bus_bandwidth(*emulator, {.buffer_bytes = 1 << 20, .seconds = 0.0});
  ASSERT_TRUE(speed.ok());
  EXPECT_GT(*speed, 0.0);
  const auto cpu = testing::make_test_device({});
  testing::expect_error(measure_bus_bandwidth(*cpu, {}), ErrorCode::kUnsupported, {"cpu", "bus"});
}

}  // namespace
}  // namespace moeflux
