// What stands behind the handles of moeflux.h, and how calls take turns.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "chat/model_text.h"
#include "engine/engine.h"
#include "moeflux/moeflux.h"
#include "sampling/sampler.h"
#include "text/tokenizer.h"

namespace moeflux {

/// A model and what belongs to it, shared by its handle and its sequences.
struct OpenModel {
  std::unique_ptr<Device> device;
  std::unique_ptr<Engine> engine;
  std::optional<Tokenizer> tokenizer;
  std::optional<Error> tokenizer_error;  // why there is none
  GenerationDefaults defaults;
  std::string device_description;
  std::string expert_io;
  uint64_t evaluated_tokens = 0;
  uint64_t evaluate_us = 0;

  /// Destroys the sequence now, or when the call that is running ends.
  void retire(std::unique_ptr<Sequence> sequence);

 private:
  friend class Turn;
  std::mutex mutex_;  // guards what follows
  bool is_busy_ = false;
  std::vector<std::unique_ptr<Sequence>> retired_;
};

/// A call's turn at a model's engine. Never waits: has_turn() is false while another call runs.
class Turn {
 public:
  explicit Turn(OpenModel& model);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool has_turn() const { return has_turn_; }

 private:
  OpenModel& model_;
  bool has_turn_ = false;
};

/// A sampler that is created anew whenever the sequence's past changes: options and draws are all
/// its state, the history is the sequence's tokens.
struct SamplerState {
  SamplerOptions options;
  uint64_t draws_count = 0;
};

}  // namespace moeflux

struct mf_model {
  std::shared_ptr<moeflux::OpenModel> open;
};

struct mf_sequence {
  /// What a checkpoint keeps beside the engine's.
  struct Kept {
    moeflux::SamplerState sampler;
    std::vector<float> logits;
  };

  std::shared_ptr<moeflux::OpenModel> open;
  std::unique_ptr<moeflux::Sequence> sequence;
  moeflux::SamplerState sampler;
  std::vector<float> logits;  // of the last token, [vocab_size]; empty: not known
  std::map<uint64_t, Kept> checkpoints;
};

struct mf_bytes {
  std::vector<std::byte> bytes;
};
