// Dense models whose layers come from the drive: the bits of resident ones, bytes and memory as
// planned, and files that break meanwhile.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backend/gpu/emulator/emulator.h"
#include "backend/gpu/gpu_device.h"
#include "base/units.h"
#include "engine/engine.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_families.h"
#include "tests/support/quantized_copy.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

using Tokens = std::vector<TokenId>;
using Logits = std::vector<float>;

Tokens text_of(size_t length) {
  Tokens tokens(length);
  for (size_t i = 0; i < length; ++i) tokens[i] = static_cast<TokenId>(7 * i % 31 + 1);
  return tokens;
}

EngineOptions with_memory(EngineOptions options, uint64_t bytes) {
  options.read_memory = [bytes] {
    return HostMemory{.total_bytes = bytes, .available_bytes = bytes};
  };
  return options;
}

std::unique_ptr<Engine> open(const std::string& model, Device& device,
                             const EngineOptions& options) {
  auto engine = Engine::open(model, device, options);
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
  return engine.ok() ? std::move(engine).value() : nullptr;
}

Status eval(Engine& engine, Sequence& sequence, std::span<const TokenId> tokens, Logits& logits) {
  return engine.eval(sequence, tokens, {.logits = LogitsMode::kAll},
                     [&](int64_t, std::span<const float> rows) {
                       logits.insert(logits.end(), rows.begin(), rows.end());
                       return Status();
                     });
}

/// A prompt in one step, and a few tokens after it, each in a step of its own.
Logits logits_of(Engine& engine, std::span<const TokenId> tokens, size_t prompt) {
  auto sequence = engine.create_sequence();
  EXPECT_TRUE(sequence.ok());
  Logits logits;
  for (size_t at = 0; at < tokens.size();) {
    const size_t rows = at == 0 ? prompt : 1;
    const Status done = eval(engine, **sequence, tokens.subspan(at, rows), logits);
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().to_string());
    at += rows;
  }
  return logits;
}

uint64_t bytes_held(const Engine& engine) {
  const auto& buffers = engine.loaded().buffers;
  return std::accumulate(buffers.begin(), buffers.end(), uint64_t{0},
                         [](uint64_t sum, const auto& b) { return sum + b->size_bytes(); });
}

class DenseStream : public ::testing::TestWithParam<std::string> {};

TEST_P(DenseStream, HasTheBitsOfAResidentModelAndReadsEachLayerOnceAStep) {
  constexpr size_t kPrompt = 9;
  constexpr size_t kSteps = 4;  // with the prompt's
  const TempFolder quantized;   // whose matrices are rearranged for the CPU
  const TempFolder twin;
  write_quantized_copy(golden_folder(GetParam()), quantized.path(), twin.path(), {});
  const Tokens tokens = text_of(kPrompt + kSteps - 1);
  for (const std::string& model : {golden_folder(GetParam()), quantized.path()}) {
    const auto device = make_test_device({});
    const EngineOptions options{.context_length = 64, .prefill_chunk = 16};
    const auto resident = open(model, *device, options);
    ASSERT_NE(resident, nullptr);
    const Logits expected = logits_of(*resident, tokens, kPrompt);
    EXPECT_EQ(resident->expert_stats().bytes_read, 0u);
    EngineOptions streaming = options;
    streaming.stream_dense = true;
    streaming.expert_cache_bytes = 0;
    const auto engine = open(model, *device, streaming);
    ASSERT_NE(engine, nullptr);
    const uint64_t step = engine->loaded().dense.streamed_bytes;
    EXPECT_GT(step, 0u);
    EXPECT_EQ(logits_of(*engine, tokens, kPrompt), expected);
    EXPECT_GE(engine->expert_stats().bytes_read, kSteps * step);
    EXPECT_LE(engine->expert_stats().bytes_read, (kSteps + 1) * step);
    // Again, from what was read ahead.
    EXPECT_EQ(logits_of(*engine, tokens, kPrompt), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DenseStream,
                         ::testing::ValuesIn(dense_families(asked(golden_families()))),
                         [](const auto& family) { return family.param; });

class LlamaStream : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> open_streamed(EngineOptions options) {
    options.stream_dense = true;
    if (options.context_length == 0) options.context_length = 64;
    return open(model_, *device_, options);
  }
  Logits resident(std::span<const TokenId> tokens, size_t prompt) {
    const auto engine = open(model_, *device_, {.context_length = 64});
    return engine == nullptr ? Logits() : logits_of(*engine, tokens, prompt);
  }

  std::string model_ = golden_folder("llama");
  std::unique_ptr<Device> device_ = make_test_device({});
};

TEST_F(LlamaStream, NothingIsStreamedWhereAllFits) {
  std::string line;
  const auto engine = open_streamed({.on_forecast = [&](const std::string& text) { line = text; }});
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->loaded().dense.streamed_bytes, 0u);
  EXPECT_NE(line.find("none is read from the drive"), std::string::npos) << line;
}

TEST_F(LlamaStream, AForecastComesBeforeTheWeights) {
  std::vector<std::string> order;
  const auto engine =
      open_streamed({.expert_cache_bytes = 0,
                     .on_forecast = [&](const std::string& line) { order.push_back(line); },
                     .load_progress =
                         [&](uint64_t, uint64_t) {
                           order.emplace_back("weights");
                           return true;
                         }});
  ASSERT_NE(engine, nullptr);
  ASSERT_GT(order.size(), 1u);
  for (const std::string_view piece : {"for every step", "GB/s", "tokens/s", "of a prompt"}) {
    EXPECT_NE(order.front().find(piece), std::string::npos) << order.front();
  }
  EXPECT_EQ(order.back(), "weights");
}

// A prompt takes one pass where memory permits, whatever the device prefers.
TEST_F(LlamaStream, StepsOfAPromptAreAsLongAsMemoryPermits) {
  const auto much = open_streamed(
      with_memory({.context_length = 512, .expert_cache_bytes = 0, .step_sequences = 4}, kGiB));
  const auto little = open_streamed(with_memory(
      {.context_length = 512, .expert_cache_bytes = 0, .step_sequences = 4}, 16 * kMiB));
  ASSERT_TRUE(much != nullptr && little != nullptr);
  EXPECT_EQ(much->prefill_chunk(), 2048);
  EXPECT_LT(little->prefill_chunk(), 2048);
  const auto asked = open_streamed(
      with_memory({.context_length = 512, .expert_cache_bytes = 0, .prefill_chunk = 5}, kGiB));
  EXPECT_EQ(asked->prefill_chunk(), 5);
}

TEST_F(LlamaStream, BuffersTakeWhatWasPlanned) {
  const auto all = open(model_, *device_, {.context_length = 64});
  const auto engine = open_streamed({.expert_cache_bytes = 0});
  ASSERT_TRUE(all != nullptr && engine != nullptr);
  const DenseSizes& dense = engine->loaded().dense;
  EXPECT_EQ(engine->memory_plan().dense_bytes, dense.bytes);
  uint64_t layers = 0;
  for (const ClaimedModule& module : all->loaded().modules) {
    if (module.layer()) layers += module.placed_bytes;
  }
  EXPECT_EQ(dense.streamed_bytes, layers);
  // Blocks that small tensors share are of a fixed size.
  EXPECT_LE(bytes_held(*engine), dense.bytes + 16 * kMiB);
}

TEST_F(LlamaStream, AFileThatBreaksFailsTheStepAndNotTheEngine) {
  const TempFolder folder;
  copy_files(model_, folder.path());
  const std::string weights = folder / "model.safetensors";
  const std::string whole = read_bytes(weights);
  const Tokens tokens = text_of(12);
  const Logits expected = resident(tokens, 10);
  model_ = folder.path();
  const auto engine = open_streamed({.expert_cache_bytes = 0});
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(logits_of(*engine, tokens, 10), expected);
  std::filesystem::resize_file(weights, 1024);
  auto sequence = engine->create_sequence();
  ASSERT_TRUE(sequence.ok());
  Logits logits;
  // Layers that were read ahead are used, those behind them are missing.
  expect_error(eval(*engine, **sequence, tokens, logits), ErrorCode::kIo,
               {"layer ", "module ", "model.safetensors"});
  expect_error(eval(*engine, **sequence, tokens, logits), ErrorCode::kFailedPrecondition, {});
  sequence = engine->create_sequence();
  ASSERT_TRUE(sequence.ok());
  expect_error(eval(*engine, **sequence, tokens, logits), ErrorCode::kIo, {"layer 0"});
  write_bytes(weights, whole);
  EXPECT_EQ(logits_of(*engine, tokens, 10), expected);
}

TEST_F(LlamaStream, ModelsWithExpertsAndTooLittleMemoryAreRefused) {
  expect_error(Engine::open(golden_folder("olmoe"), *device_, {.stream_dense = true}),
               ErrorCode::kInvalidArgument, {"--stream-dense", "without experts", "olmoe"});
  EngineOptions options = with_memory({.context_length = 64}, 200 * kKiB);
  expect_error(Engine::open(model_, *device_, options), ErrorCode::kResourceExhausted,
               {"200.0 KiB of memory are free", "--stream-dense"});
  options.stream_dense = true;
  expect_error(Engine::open(model_, *device_, options), ErrorCode::kResourceExhausted,
               {"two of them take", "64 tokens", "200.0 KiB of memory are free"});
}

// Layers that the GPU holds whole stay there, the others pass through the host.
TEST_F(LlamaStream, AGpuReadsLayersOfARingOverTheBus) {
  const Tokens tokens = text_of(12);
  const auto open_on = [&](uint64_t memory_bytes, bool streams, std::unique_ptr<Device>& device) {
    device = make_emulator_device({.seed = 5, .matrix_units = true, .memory_bytes = memory_bytes});
    EngineOptions options = {.context_length = 64, .prefill_chunk = 12, .stream_dense = streams};
    if (streams) options.expert_cache_bytes = 0;
    return Engine::open(model_, *device, options);
  };
  std::unique_ptr<Device> all;
  const auto resident = open_on(uint64_t{1} << 40, false, all);
  ASSERT_TRUE(resident.ok());
  const Logits expected = logits_of(**resident, tokens, 10);
  uint64_t before = 0;
  int kinds = 0;
  for (uint64_t bytes = 4 * kMiB; bytes > kMiB; bytes -= 64 * kKiB) {
    std::unique_ptr<Device> device;
    const auto engine = open_on(bytes, true, device);
    if (!engine.ok()) {
      EXPECT_EQ(engine.error().code(), ErrorCode::kResourceExhausted);
      break;
    }
    const uint64_t streamed = (*engine)->loaded().dense.streamed_bytes;
    EXPECT_GE(streamed, before) << bytes;
    if (streamed == before) continue;
    before = streamed;
    ++kinds;
    EXPECT_EQ(logits_of(**engine, tokens, 10), expected) << bytes;
  }
  EXPECT_GT(kinds, 1);  // some of them with layers of both kinds
}

}  // namespace
}  // namespace moeflux::testing
