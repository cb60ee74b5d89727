// Opens a model on a device and evaluates tokens, with every knob that must not change a bit.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "engine/engine.h"
#include "tests/support/key_choices.h"

namespace moeflux::testing {

/// Two devices choose the same token where its logit is larger than the next by more.
inline constexpr float kClearMargin = 0.05f;

struct RunOptions {
  std::string device = "cpu";             // or "cpu portable", "cpu avx2", ...: of kernels,
                                          // "reference", "tiling reference", "emulator",
                                          // "emulator with matrix units",
                                          // "emulator of a small GPU", "emulator behind metal",
                                          // "cuda:0", "cuda:0 as a small GPU", "metal"
  Precision precision = Precision::kF32;  // of the cpu device
  int threads = 2;
  std::optional<DType> cache_type;  // of keys and values; empty: as the device prefers
  std::optional<uint64_t> expert_cache_bytes = uint64_t{1} << 30;
  std::vector<int64_t>
      chunks;  // sizes of successive evals, the last one repeated; empty: all at once
  int64_t context_length = 0;  // 0: 64, or more where there are more tokens
  int64_t prefill_chunk = 0;   // tokens of a step at most, of which rings are made; 0: the device's
  bool hidden_states = false;
  HiddenObserver* observer = nullptr;  // in the place of the one that records hidden states
  bool record_routes = false;
  /// Routes and their weights that an earlier run recorded over the same chunks, or null: what the
  /// routers choose.
  const RouteTrace* forced_routes = nullptr;
  /// Where the "reference" device writes which keys were chosen, or null.
  KeyChoices* record_keys = nullptr;
  /// The choices of a run over the same chunks, for the "cpu" device to attend to; or null.
  const KeyChoices* forced_keys = nullptr;
};

struct RunOutput {
  std::vector<float> logits;  // [tokens, vocab]
  int64_t vocab_size = 0;
  std::map<int64_t, std::vector<float>> hidden_states;  // by layer, [tokens, hidden]
  std::optional<RouteTrace> routes;                     // if they were to be recorded
  ExpertStats experts;
  uint64_t expert_capacity_bytes = 0;

  std::span<const float> row(int64_t i) const;
};

/// A failure is a gtest failure and an empty output.
RunOutput run_model(const std::string& directory, std::span<const TokenId> tokens,
                    const RunOptions& options);

std::unique_ptr<Device> make_test_device(const RunOptions& options);

/// `devices`, and the GPUs that the build has code for, whether this machine has them or not.
std::vector<std::string> and_built_gpus(std::vector<std::string> devices);
/// Why this machine lacks the GPU of that name; empty for one it has, and for any other device. Any
/// other reason why a GPU cannot be opened is a gtest failure.
std::string missing_gpu(const std::string& device);
/// A device's name as part of a test's: "cuda_0".
std::string test_name_of(std::string device);
/// FAMILY_on_DEVICE: of a test with both as parameters.
inline std::string family_and_device(
    const ::testing::TestParamInfo<std::tuple<std::string, std::string>>& test) {
  return std::get<0>(test.param) + "_on_" + test_name_of(std::get<1>(test.param));
}

}  // namespace moeflux::testing
