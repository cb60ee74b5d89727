// Opens a model on a device and evaluates tokens, with every knob that must not change a bit.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace moeflux::testing {

struct RunOptions {
  std::string device = "cpu";  // or "reference", "tiling reference", "emulator",
                               // "emulator with matrix units", "emulator of a small GPU",
                               // "emulator behind metal", "cuda:0", "cuda:0 as a small GPU",
                               // "metal"
  int threads = 2;
  std::optional<uint64_t> expert_cache_bytes = uint64_t{1} << 30;
  std::vector<int64_t>
      chunks;  // sizes of successive evals, the last one repeated; empty: all at once
  bool hidden_states = false;
};

struct RunOutput {
  std::vector<float> logits;  // [tokens, vocab]
  int64_t vocab_size = 0;
  std::map<int64_t, std::vector<float>> hidden_states;  // by layer, [tokens, hidden]
  ExpertStats experts;
  uint64_t expert_capacity_bytes = 0;

  std::span<const float> row(int64_t i) const;
};

/// A failure is a gtest failure and an empty output.
RunOutput run_model(const std::string& directory, std::span<const TokenId> tokens,
                    const RunOptions& options);

std::unique_ptr<Device> make_test_device(const RunOptions& options);

/// `devices`, and those of this machine's GPUs that the build has code for.
std::vector<const char*> and_gpus(std::vector<const char*> devices);

}  // namespace moeflux::testing
