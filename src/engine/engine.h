// Engine: evaluates tokens of sequences on one model and one device. Owns weights, expert cache and
// readers. Thread-compatible: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "base/ids.h"
#include "base/result.h"
#include "engine/memory_plan.h"
#include "experts/expert_store.h"
#include "experts/lookahead.h"
#include "experts/route_trace.h"
#include "io/reader_factory.h"
#include "model/model.h"

namespace moeflux {

struct EngineOptions {
  /// 0: the model's maximum, but no more than 4096.
  int64_t context_length = 0;
  /// Bytes for experts; 0 is the least that can work; none: a share of free memory.
  std::optional<uint64_t> expert_cache_bytes;
  /// How experts are read; see make_reader(). Does not change the results.
  IoMode expert_io = IoMode::kAuto;
  /// Threads that read experts where the mode has threads: enough to keep a drive's queue filled.
  int reader_threads = 8;
  /// Tokens evaluated together in prefill. Does not change the results.
  int64_t prefill_chunk = 512;
  /// Which experts stay in the cache. Does not change the results.
  EvictionPolicyOptions eviction = {};
  /// Whether experts are read before their router asks for them. Does not change the results.
  LookaheadMode lookahead = LookaheadMode::kAuto;
  /// Routes to take instead of the routers', for measurements, or null: the results mean nothing.
  const RouteTrace* forced_routes = nullptr;
  /// Compare experts of a pack with their checksums when they first arrive.
  bool check_experts = true;
};

/// The context a sequence gets: what was asked for, or the model's maximum up to 4096. Fails with
/// kInvalidArgument beyond the model's maximum.
Result<int64_t> context_length_for(const ModelSpec& spec, const EngineOptions& options);

/// One text being evaluated. Belongs to the engine that made it and must not outlive it.
class Sequence {
 public:
  /// Tokens evaluated so far.
  int64_t length() const { return state_->length(); }

 private:
  friend class Engine;
  explicit Sequence(std::unique_ptr<SequenceState> state) : state_(std::move(state)) {}

  std::unique_ptr<SequenceState> state_;
  bool broken_ = false;  // a step failed half-way: layers disagree about the past
};

enum class LogitsMode : uint8_t { kNone, kLast, kAll };

struct EvalOptions {
  LogitsMode logits = LogitsMode::kLast;
  std::stop_token stop = {};  // looked at between chunks; a stopped eval fails with kCancelled, the
                              // sequence stays usable
  HiddenObserver* observer = nullptr;
};

/// Receives f32 [rows, vocab_size], the first row belonging to the token at `first_position`.
using LogitsSink = std::function<Status(int64_t first_position, std::span<const float> rows)>;

class Engine {
 public:
  /// The device must outlive the engine.
  static Result<std::unique_ptr<Engine>> open(const std::string& model_directory, Device& device,
                                              const EngineOptions& options);
  ~Engine();

  const ModelSpec& spec() const { return loaded_->spec(); }
  const MemoryPlan& memory_plan() const { return plan_; }
  int64_t context_length() const { return context_length_; }
  ExpertStats expert_stats() const { return experts_->stats(); }
  /// Where the model's experts lie and what they take.
  const ExpertTable& experts() const { return loaded_->experts; }
  /// Who is told which experts each layer chooses from now on, or null. Must outlive the engine, or
  /// be taken away.
  void observe_routes(RouteObserver* observer) { experts_->observe_routes(observer); }
  uint64_t expert_capacity_bytes() const { return experts_->capacity_bytes(); }
  /// What IoMode::kAuto became.
  std::string_view expert_io() const { return reader_->name(); }

  Result<std::unique_ptr<Sequence>> create_sequence();

  /// Appends tokens to the sequence. Fails with kInvalidArgument for an empty span or a token
  /// outside the vocabulary, kResourceExhausted when the context or memory is full; both leave the
  /// sequence usable, at the last whole chunk. After kIo the sequence is broken and every later
  /// call fails with kFailedPrecondition.
  Status eval(Sequence& sequence, std::span<const TokenId> tokens, const EvalOptions& options,
              const LogitsSink& sink);
  /// The same for the last token's logits: a view that lives until the next call.
  Result<std::span<const float>> eval_last(Sequence& sequence, std::span<const TokenId> tokens,
                                           std::stop_token stop = {});

 private:
  Engine() = default;
  Status check_tokens(const Sequence& sequence, std::span<const TokenId> tokens) const;
  Status eval_chunk(Sequence& sequence, std::span<const TokenId> tokens, int64_t logits_rows,
                    HiddenObserver* observer);
  int64_t chunk_tokens(LogitsMode mode) const;

  std::unique_ptr<LoadedModel> loaded_;
  MemoryPlan plan_;
  int64_t context_length_ = 0;
  int64_t prefill_chunk_ = 0;
  Device* device_ = nullptr;
  std::unique_ptr<AsyncReader> reader_;
  std::unique_ptr<ExpertStore> experts_;  // uses reader_ and loaded_
  std::unique_ptr<Encoder> encoder_;      // may keep leases of experts_ alive
  std::vector<std::unique_ptr<Buffer>> step_buffers_;
  Tensor token_ids_;  // i32 [prefill_chunk]
  Tensor positions_;  // i32 [prefill_chunk]
  Tensor logits_;     // f32 [rows, vocab_size]
  std::vector<float> host_logits_;
  std::vector<int32_t> host_positions_;
};

}  // namespace moeflux
