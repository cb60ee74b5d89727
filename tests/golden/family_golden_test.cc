// Every family against the numbers its reference implementation computed on a tiny checkpoint.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/format.h"
#include "checkpoint/tensor_index.h"
#include "engine/engine.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_families.h"
#include "tests/support/golden_file.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

// Float32 against float32; the reference's own rounding differs in the last bits.
constexpr double kReferenceTolerance = 1e-3;
constexpr double kCosineLeast = 0.999999;
constexpr double kF16CacheTolerance = 2e-2;
constexpr double kQ8CacheTolerance = 0.1;

class FamilyGolden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    directory_ = golden_folder(GetParam());
    golden_ = read_golden(directory_ + "/golden.safetensors");
    ASSERT_TRUE(golden_.contains("tokens") && golden_.contains("logits"));
  }
  const std::vector<TokenId>& tokens() { return golden_["tokens"].ints; }

  std::string directory_;
  std::map<std::string, GoldenTensor> golden_;
};

TEST_P(FamilyGolden, ReferenceDeviceAgreesAtEveryPosition) {
  const RunOutput run = run_model(directory_, tokens(), {.device = "reference"});
  ASSERT_EQ(run.logits.size(), golden_["logits"].floats.size());
  for (int64_t i = 0; i < golden_["logits"].rows(); ++i) {
    EXPECT_LE(max_abs_difference(run.row(i), golden_["logits"].row(i)), kReferenceTolerance)
        << "position " << i;
  }
}

/// Families whose goldens were computed in float64: without experts, or where no router's choice is
/// near another.
class ExactFamilyGolden : public FamilyGolden {};

std::vector<std::string> exact_families() {
  std::vector<std::string> families = dense_families(asked(golden_families()));
  for (const char* family : {"axk1", "axk2", "beam", "dots3_note_text", "flint", "granitemoe_swa",
                             "hy_v4", "kolibri1", "lara_mini", "mellum", "mistral_large4_text",
                             "muse_spark_text", "sarvam_mla", "sarvam_moe", "zaya"}) {
    if (may_be_asked(family)) families.emplace_back(family);
  }
  return families;
}

TEST_P(ExactFamilyGolden, ReferenceAndCpuInF32AgreeAtEveryPosition) {
  for (const std::string device : {"reference", "cpu"}) {
    const RunOutput run =
        run_model(directory_, tokens(), {.device = device, .cache_type = DType::kF32});
    ASSERT_EQ(run.logits.size(), golden_["logits"].floats.size()) << device;
    for (int64_t i = 0; i < golden_["logits"].rows(); ++i) {
      const auto expected = golden_["logits"].row(i);
      EXPECT_LE(max_abs_difference(run.row(i), expected), kReferenceTolerance)
          << device << ", position " << i;
      EXPECT_GE(cosine(run.row(i), expected), kCosineLeast) << device << ", position " << i;
    }
  }
}

// LongRoPE has other factors for them; the engine chooses by the longest text that it will see.
TEST(Phi3Golden, ShortContextsHaveFactorsOfTheirOwn) {
  auto golden = read_golden(golden_folder("phi3") + "/golden.safetensors");
  const GoldenTensor& expected = golden["logits_short"];
  const auto count = static_cast<size_t>(expected.rows());
  ASSERT_GT(count, 0u);
  const RunOutput run =
      run_model(golden_folder("phi3"), std::span(golden["tokens"].ints).first(count),
                {.device = "reference", .context_length = 16});
  for (int64_t i = 0; i < expected.rows(); ++i) {
    EXPECT_LE(max_abs_difference(run.row(i), expected.row(i)), kReferenceTolerance) << i;
  }
}

TEST(DenseModels, OneLargerThanMemoryIsRefusedBeforeItIsRead) {
  const auto device = make_test_device({});
  EngineOptions options;
  options.read_memory = [] { return HostMemory{.available_bytes = 64 << 10}; };
  int reads = 0;
  options.load_progress = [&](uint64_t, uint64_t) { return ++reads > 0; };
  expect_error(Engine::open(golden_folder("llama"), *device, options),
               ErrorCode::kResourceExhausted, {"weights take", "64.0 KiB of memory are free"});
  EXPECT_EQ(reads, 0);
}

// Positions of which an index chooses another key by keys of 16 bits: the reference's scores were
// as near as 1.8e-4 to each other.
const std::map<std::string, std::set<int64_t>> kOtherKeysIn16Bits = {{"dots3_note_text", {15}},
                                                                     {"hy_v4", {28, 32, 42}}};

// Keys and values are off by 2^-11 of themselves; logits have deviation 1.
TEST_P(FamilyGolden, KeysAndValuesInF16AgreeAtEveryPosition) {
  const RunOutput run =
      run_model(directory_, tokens(), {.device = "reference", .cache_type = DType::kF16});
  ASSERT_EQ(run.logits.size(), golden_["logits"].floats.size());
  const auto others = kOtherKeysIn16Bits.find(GetParam());
  for (int64_t i = 0; i < golden_["logits"].rows(); ++i) {
    if (others != kOtherKeysIn16Bits.end() && others->second.contains(i)) continue;
    EXPECT_LE(max_abs_difference(run.row(i), golden_["logits"].row(i)), kF16CacheTolerance)
        << "position " << i;
  }
}

/// Families whose golden has heads of multiples of 32.
class FamilyGoldenIn8Bits : public FamilyGolden {};

// Keys and values are off by up to 1/254 of the largest of 32. The routes are those of f32: with
// their own, logits of these random models are off by up to 1.9 where another expert is chosen.
TEST_P(FamilyGoldenIn8Bits, KeysAndValuesInQ8AgreeAtEveryPosition) {
  const std::vector<int64_t> chunks = {static_cast<int64_t>(tokens().size()) - 1, 1};
  const RunOutput routes = run_model(
      directory_, tokens(), {.device = "reference", .chunks = chunks, .record_routes = true});
  ASSERT_TRUE(routes.routes.has_value());
  // Scores of Gemma are not divided by the root of 32 or 64, so errors of keys weigh more.
  const double tolerance = kQ8CacheTolerance * (GetParam() == "gemma4_text" ? 3.0 : 1.0);
  for (const std::string device : {"reference", "cpu", "emulator with matrix units"}) {
    const RunOutput run = run_model(directory_, tokens(),
                                    {.device = device,
                                     .cache_type = DType::kI8,
                                     .chunks = chunks,
                                     .forced_routes = &*routes.routes});
    ASSERT_EQ(run.logits.size(), golden_["logits"].floats.size());
    double most = 0.0;
    for (int64_t i = 0; i < golden_["logits"].rows(); ++i) {
      most = std::max<double>(most, max_abs_difference(run.row(i), golden_["logits"].row(i)));
    }
    EXPECT_LE(most, tolerance) << device;
    EXPECT_GE(most, kReferenceTolerance) << device << " did not round";
  }
}

TEST_P(FamilyGoldenIn8Bits, ChunksOfPrefillAndDecodeGiveTheSameBits) {
  const RunOutput whole = run_model(directory_, tokens(), {.cache_type = DType::kI8});
  ASSERT_FALSE(whole.logits.empty());
  for (const int64_t chunk : {1, 3, 30}) {
    const RunOutput cut =
        run_model(directory_, tokens(), {.cache_type = DType::kI8, .chunks = {chunk}});
    EXPECT_EQ(cut.logits, whole.logits) << "chunks of " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamilyGoldenIn8Bits,
                         ::testing::Values("gemma4_text", "gpt_oss", "minimax_m2", "mixtral",
                                           "qwen3_5_moe_text", "qwen3_next"),
                         [](const auto& test) { return test.param; });

TEST(CacheTypes, AFamilyWhoseHeadsAreNoMultiplesOf32IsRefusedByTheLayer) {
  const std::map<std::string, std::string> expected = {
      {"qwen3_moe", "layer 0: keys of a head have 16 numbers"},
      {"mimo_v2_flash", "layer 0: keys of a head have 48 numbers"},
      {"deepseek_v3", "layer 0: rotary parts of latents have 16 numbers"}};
  const auto device = make_test_device({.threads = 1});
  for (const auto& [family, message] : expected) {
    const auto engine = Engine::open(golden_folder(family), *device, {.cache_type_k = DType::kI8});
    ASSERT_FALSE(engine.ok()) << family;
    EXPECT_EQ(engine.error().code(), ErrorCode::kUnsupported);
    EXPECT_NE(engine.error().message().find(message), std::string::npos)
        << engine.error().message();
  }
}

TEST(CacheTypes, AGpuRefusesKeysAndValuesOfTwoTypes) {
  const auto emulator = make_test_device({.device = "emulator", .threads = 1});
  const auto cpu = make_test_device({.threads = 1});
  const EngineOptions mixed{.cache_type_k = DType::kF32, .cache_type_v = DType::kF16};
  expect_error(Engine::open(golden_folder("qwen3_moe"), *emulator, mixed), ErrorCode::kUnsupported,
               {"--cache-type-k", "layer 0", "keys in f32 and values in f16: emulator"});
  EXPECT_TRUE(Engine::open(golden_folder("qwen3_moe"), *cpu, mixed).ok());
  // Latents have no values of their own.
  EXPECT_TRUE(Engine::open(golden_folder("deepseek_v3"), *emulator, mixed).ok());
}

TEST(ListedExperts, AnIdThatIsNoExpertsIsRefusedByTheTensorsName) {
  const std::string folder = golden_folder("deepseek_v4");
  const std::string name = "layers.1.ffn.gate.tid2eid";
  const auto index = TensorIndex::open(folder);
  ASSERT_TRUE(index.ok());
  const TensorEntry* table = index->find(name);
  ASSERT_NE(table, nullptr);
  ASSERT_EQ(table->dtype, DType::kI64);
  const auto device = make_test_device({.threads = 1});
  for (const char high : {'\0', '\xff'}) {  // 8 of 8 experts, or a negative one
    std::string bytes = read_bytes(folder + "/model.safetensors");
    bytes[table->offset_bytes] = 8;
    bytes[table->offset_bytes + 7] = high;
    const TempFolder changed;
    write_bytes(changed.path() + "/model.safetensors", bytes);
    write_bytes(changed.path() + "/config.json", read_bytes(folder + "/config.json"));
    expect_error(Engine::open(changed.path(), *device, {}), ErrorCode::kCorruption,
                 {name, "below 8"});
  }
}

/// Families whose residual is one stream, as hidden states are.
class FamilyGoldenByLayer : public FamilyGolden {};

TEST_P(FamilyGoldenByLayer, HiddenStatesAgreeLayerByLayer) {
  const GoldenTensor& expected = golden_["hidden_states"];
  ASSERT_FALSE(expected.floats.empty());
  const RunOutput run =
      run_model(directory_, tokens(), {.device = "reference", .hidden_states = true});
  const auto layer_elements = static_cast<size_t>(expected.shape[1] * expected.shape[2]);
  ASSERT_EQ(run.hidden_states.size(), static_cast<size_t>(expected.shape[0]));
  for (const auto& [layer, hidden] : run.hidden_states) {
    const auto begin = static_cast<size_t>(layer) * layer_elements;
    EXPECT_LE(max_abs_difference(hidden, std::span(expected.floats).subspan(begin, layer_elements)),
              kReferenceTolerance)
        << "after layer " << layer;
  }
}

TEST_P(FamilyGolden, ChunksOfPrefillAndDecodeGiveTheSameBits) {
  const RunOutput whole = run_model(directory_, tokens(), {});
  ASSERT_FALSE(whole.logits.empty());
  for (const std::vector<int64_t>& chunks :
       std::vector<std::vector<int64_t>>{{1}, {7}, {40, 1}, {3, 1, 30, 1}}) {
    EXPECT_EQ(run_model(directory_, tokens(), {.chunks = chunks}).logits, whole.logits)
        << "first chunk " << chunks.front();
  }
}

TEST_P(FamilyGolden, CacheSizeAndThreadsDoNotChangeABit) {
  const RunOutput roomy = run_model(directory_, tokens(), {.threads = 2});
  ASSERT_FALSE(roomy.logits.empty());
  for (const uint64_t cache : {uint64_t{0}, uint64_t{1} << 20}) {
    for (const int threads : {1, 3}) {
      const RunOutput tight =
          run_model(directory_, tokens(),
                    {.threads = threads, .expert_cache_bytes = cache, .chunks = {9, 1}});
      EXPECT_EQ(tight.logits, roomy.logits) << "cache " << cache << ", threads " << threads;
    }
  }
}

TEST_P(FamilyGolden, GreedyTokensAgreeWhereTheChoiceIsClear) {
  std::vector<TokenId> text = tokens();
  const std::vector<TokenId>& expected = golden_["greedy"].ints;
  text.insert(text.end(), expected.begin(), expected.end() - 1);
  const RunOutput run = run_model(directory_, text, {.device = "reference"});
  ASSERT_FALSE(run.logits.empty());
  int64_t compared = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const Top top = top_of(run.row(static_cast<int64_t>(tokens().size() + i) - 1));
    if (top.margin < kClearMargin) continue;
    EXPECT_EQ(static_cast<TokenId>(top.index), expected[i]) << "token " << i;
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

INSTANTIATE_TEST_SUITE_P(All, ExactFamilyGolden, ::testing::ValuesIn(exact_families()),
                         [](const auto& test) { return test.param; });
INSTANTIATE_TEST_SUITE_P(All, FamilyGoldenByLayer,
                         ::testing::ValuesIn(asked(families_of_one_stream())),
                         [](const auto& test) { return test.param; });
INSTANTIATE_TEST_SUITE_P(All, FamilyGolden, ::testing::ValuesIn(asked(golden_families())),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace moeflux::testing
