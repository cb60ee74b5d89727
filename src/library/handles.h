// What stands behind the handles of moeflux.h.
#pragma once

#include <atomic>
#include <cstddef>
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
#include "library/turn.h"
#include "moeflux/moeflux.h"
#include "sampling/sampler.h"
#include "text/tokenizer.h"

namespace moeflux {

/// A model and what belongs to it, shared by its handle, its sequences and their calls.
struct OpenModel {
  std::unique_ptr<Device> device;
  std::unique_ptr<Engine> engine;
  std::optional<Tokenizer> tokenizer;
  std::optional<Error> tokenizer_error;  // why there is none
  GenerationDefaults defaults;
  std::string device_description;
  std::string expert_io;
  int64_t turn_timeout_ms = 0;  // as mf_model_options has it
  TurnQueue turns;

  /// Makes known what the engine has counted, and these tokens and microseconds more. Of the call
  /// whose turn it is.
  void publish_metrics(uint64_t evaluated_tokens, uint64_t evaluate_us);
  /// What was published last. Any thread, without a turn.
  mf_metrics metrics() const;

 private:
  mutable std::mutex metrics_mutex_;  // guards what follows
  mf_metrics metrics_ = {};
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
  // These two are for any thread.
  std::atomic<int64_t> turn_timeout_ms;
  mutable std::atomic<int64_t> position = 0;  // published by the call whose turn it is

  mf_sequence(std::shared_ptr<moeflux::OpenModel> with_open,
              std::unique_ptr<moeflux::Sequence> with_sequence, moeflux::SamplerState with_sampler,
              int64_t with_turn_timeout_ms)
      : open(std::move(with_open)),
        sequence(std::move(with_sequence)),
        sampler(std::move(with_sampler)),
        turn_timeout_ms(with_turn_timeout_ms) {
    publish_position();
  }
  void publish_position() const { position = sequence->length(); }
};

struct mf_bytes {
  std::vector<std::byte> bytes;
};
