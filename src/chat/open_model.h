// Opens a model, once for every client, and keeps together what belongs to it: device, engine,
// tokenizer, generation defaults, whose turn it is and what has been counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "backend/device.h"
#include "base/result.h"
#include "chat/drafts/draft_options.h"
#include "chat/drafts/draft_price.h"
#include "chat/model_text.h"
#include "chat/turn_queue.h"
#include "constraint/constraint.h"
#include "devices/open_device.h"
#include "engine/engine.h"

namespace moeflux {

struct OpenModelOptions {
  DeviceOptions device;
  EngineOptions engine;
  /// How long calls of new sessions wait for their turn; see Turn.
  int64_t turn_timeout_ms = 0;
  /// Asked between the steps of calls of sessions and embeddings, and while such a call waits for
  /// its turn: true ends it as Session::cancel() does. Requests of a Scheduler do not ask.
  std::function<bool()> should_stop = {};
  /// Receives one line, before weights are read, if config.json has keys that nobody knows, one if
  /// the tokenizer had to be guessed, and what EngineOptions::on_warning says.
  std::function<void(const std::string& line)> on_warning = {};
  ConstraintLimits constraints = {};
  /// Drafts in every text of the model. Does not change the results.
  DraftOptions drafts = {};
};

/// Counts from the opening on.
struct ModelCounters {
  ExpertStats experts;
  uint64_t expert_capacity_bytes = 0;  // what the cache may take
  uint64_t evaluated_tokens = 0;
  uint64_t evaluate_us = 0;  // in evaluations, callbacks left out
};

/// Shared by its sessions and their calls.
struct OpenModel {
  std::string directory;
  ModelText text;
  std::unique_ptr<Device> device;
  std::unique_ptr<Device> helper;  // or null
  std::unique_ptr<Engine> engine;
  std::string device_description;
  std::string expert_io;
  int64_t turn_timeout_ms = 0;
  std::function<bool()> should_stop;  // OpenModelOptions::should_stop
  DraftOptions drafts;
  /// Whether the call at hand is to end.
  bool is_aborted() const { return should_stop && should_stop(); }

  TurnQueue turns;  // last: what it still has to destroy is the engine's

  /// Makes known what the engine has counted, and these tokens and microseconds more. Only for the
  /// call whose turn it is.
  void publish(uint64_t evaluated_tokens, uint64_t evaluate_us);
  /// As last published. Any thread, without a turn.
  ModelCounters counters() const;
  /// The experts' places as last published, or null. The next publish() makes a new map: none is
  /// made while nobody asks. Any thread, without a turn.
  std::shared_ptr<const ExpertMap> expert_map();

  /// The worth of drafts to the last text of this model that ended, with which the next begins. Any
  /// thread, without a turn.
  DraftPrice draft_price() const;
  void publish(const DraftPrice& price);

  /// For texts of this model. The first call makes a tree of the vocabulary. Any thread, without a
  /// turn. Fails as Constraint::compile() does, and without a tokenizer.
  Result<std::shared_ptr<const Constraint>> compile(const OutputConstraint& constraint);

 private:
  friend Result<std::shared_ptr<OpenModel>> open_model(const std::string& directory,
                                                       const OpenModelOptions& options,
                                                       ModelText text);
  Result<std::shared_ptr<const TokenTree>> token_tree();

  ConstraintLimits constraint_limits_;
  std::mutex token_tree_mutex_;                  // guards what follows, also while it is made
  std::shared_ptr<const TokenTree> token_tree_;  // null until somebody asks for it
  std::atomic<bool> map_is_wanted_ = false;
  mutable std::mutex counters_mutex_;  // guards what follows
  ModelCounters counters_;
  DraftPrice draft_price_;
  std::shared_ptr<const ExpertMap> expert_map_;
};

/// Opens a folder. `text` is what load_model_text() gave, for sessions that generate. Fails as
/// open_device() and Engine::open() do.
Result<std::shared_ptr<OpenModel>> open_model(const std::string& directory,
                                              const OpenModelOptions& options, ModelText text = {});

}  // namespace moeflux
