// Engine: evaluates tokens of sequences on one model and one device. Owns weights, expert cache and
// readers. Thread-compatible: one thread at a time.
#pragma once

#include <chrono>
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
#include "base/token_mask.h"
#include "engine/memory_pressure.h"
#include "engine/prefixes.h"
#include "engine/sequence.h"
#include "engine/snapshot.h"
#include "experts/drive/lookahead.h"
#include "experts/expert_store.h"
#include "experts/stores/streamed_expert_store.h"
#include "experts/tiers/near_placement.h"
#include "experts/tiers/near_slots.h"
#include "experts/tiers/usage_profile.h"
#include "io/host_memory.h"
#include "io/reader_factory.h"
#include "load/far_networks.h"
#include "load/layer_stream.h"
#include "load/ngram_rows.h"
#include "model/model.h"
#include "plan/device_plan.h"
#include "plan/expert_plan.h"
#include "plan/memory_plan.h"
#include "plan/plan_mode.h"
#include "sampling/sampler.h"

namespace moeflux {

struct EngineOptions {
  /// 0: what memory allows; see kContextShare.
  int64_t context_length = 0;
  /// Bytes for experts; 0 is the least that can work; none: what is free.
  std::optional<uint64_t> expert_cache_bytes;
  /// Bytes of a device's own memory for experts, where it has some and does not hold them all;
  /// none: what is free. Does not change the results.
  std::optional<uint64_t> near_cache_bytes;
  /// Bytes of it through which a prompt's experts go; none: a share. Does not change the results.
  std::optional<uint64_t> ring_bytes;
  /// Chooses the experts that lie there. Does not change the results.
  NearPlacementOptions placement = {};
  /// The device that computes them. Does not change the results.
  PlanMode plan = PlanMode::kAuto;
  /// The parts of the model that each of several devices has. kExperts wants memory for all
  /// experts, which the devices reach of each other. Does not change the results.
  SplitMode split = SplitMode::kLayers;
  /// Computes experts in the host's memory, where it gives the bits of the device and the plan has
  /// a helper; null: nobody. Must outlive the engine.
  Device* helper = nullptr;
  /// How experts are read; see make_reader(). Does not change the results.
  IoMode expert_io = IoMode::kAuto;
  /// Threads that read experts where the mode has threads: enough to keep a drive's queue filled.
  int reader_threads = 8;
  /// Tokens evaluated together in prefill; 0: as many as the device prefers, or more where experts
  /// are brought to them (plan/long_steps.h). Does not change the results.
  int64_t prefill_chunk = 0;
  /// Sequences that share a step: it is planned for as many contexts, and more of them take more
  /// steps where contexts are short. Does not change the results.
  int64_t step_sequences = 1;
  /// The types of keys and values in memory, kF32, kF16 or kI8 (quant/q8_rows.h);
  /// none: as the device prefers.
  std::optional<DType> cache_type_k = {};
  std::optional<DType> cache_type_v = {};
  /// Chooses the experts that stay in the cache. Does not change the results.
  EvictionPolicyOptions eviction = {};
  /// Whether experts are read before their router asks for them. Does not change the results.
  LookaheadMode lookahead = LookaheadMode::kAuto;
  /// Routes to take instead of the routers', for measurements, or null: the results mean nothing.
  const RouteTrace* forced_routes = nullptr;
  /// The trace's weights as well: what one device chose, computed by another.
  bool forced_weights = false;
  /// Layers of a model without experts that do not fit memory, or expert_cache_bytes, are read from
  /// the drive for every step. Does not change the results.
  bool stream_dense = false;
  /// The model's own layer that predicts further tokens (MTP) is loaded for draft(). Does not
  /// change the results.
  bool draft_layer = false;
  /// Told then, before weights are read, how fast a drive that is measured lets it be; null:
  /// nothing is measured.
  std::function<void(const std::string& line)> on_forecast = {};
  /// Compare experts of a pack with their checksums when they first arrive.
  bool check_experts = true;
  /// Told of the dense weights while they are read.
  LoadProgress load_progress = {};
  /// Bytes of states that Prefixes::keep() may keep, in a folder those of all who share it; 0:
  /// none.
  uint64_t prefix_cache_bytes = 0;
  /// Where kept states lie, so that they survive the process: a folder, made unless it exists, that
  /// engines of other models and devices may share. Empty: in memory.
  std::string prefix_cache_directory;
  /// File of a UsageProfile that ranks the cold cache's experts, and chooses those that begin near,
  /// if it exists, and that save_expert_profile() writes; empty: none. Does not change the results.
  std::string expert_profile;
  /// Told at open, in a line each, what was not to be had as it was planned: less memory of a
  /// device, none of the host's that it reaches. Does not change the results.
  std::function<void(const std::string& line)> on_warning = {};
  /// Tells what memory is left, at open and, not more often than every so many milliseconds,
  /// between steps: when it runs out, the expert cache shrinks. Does not change the results.
  std::function<HostMemory()> read_memory = query_host_memory;
  std::chrono::milliseconds memory_interval{500};
};

/// The options that Engine::replan() changes.
struct PlanRequest {
  std::optional<uint64_t> near_cache_bytes;
  PlanMode plan = PlanMode::kAuto;
};

/// Tokens of a sequence that memory is set aside for: the context that was asked for, or the
/// model's maximum up to 4096, beyond which long texts take memory as they grow. Fails with
/// kInvalidArgument beyond the model's maximum.
Result<int64_t> planned_tokens_for(const ModelSpec& spec, const EngineOptions& options);
/// Tokens that the sequences of a step can have at most.
int64_t step_tokens_max(const ModelSpec& spec, const EngineOptions& options);
/// Tokens evaluated together: what was asked for or what the device prefers, within the contexts of
/// the sequences that share a step. See lengthen_step() for where experts are brought to them.
int64_t prefill_chunk_for(const Device& device, const EngineOptions& options, int64_t context);

/// The largest blob that a caller may put into a snapshot.
constexpr uint64_t kExtraBytesMax = uint64_t{16} << 20;

/// The part of a last row of logits that is read back: the `count` best of ids below `of`; all of
/// it for 0. count at most kTopRowsMax and `of`, `of` at most vocab_size.
struct BestLogits {
  int32_t count = 0;
  int32_t of = 0;
  /// For LogitsMode::kLast: the best of what is allowed and not apart, and behind them all of
  /// `apart` that is allowed. There may be fewer than `count`. A logit that is no number
  /// or plus infinity comes whether allowed or not, perhaps twice.
  bool is_ruled = false;
  TokenMask allowed = {};               // without words: all
  std::span<const TokenId> apart = {};  // below `of`, each once, at most kApartMax
};
constexpr size_t kApartMax = 256;

struct RestoreOptions {
  /// Engine::draft() still has what steps since the checkpoint have left for it.
  bool keeps_drafts = false;
};

enum class LogitsMode : uint8_t { kNone, kLast, kAll };

struct EvalOptions {
  LogitsMode logits = LogitsMode::kLast;
  /// The rows that the head sees, behind the last norm, for StepItem::hidden_sink. They take no
  /// memory of the device.
  LogitsMode hidden = LogitsMode::kNone;
  std::stop_token stop = {};  // looked at between chunks; a stopped eval fails with kCancelled, the
                              // sequence stays usable
  HiddenObserver* observer = nullptr;
  /// The logits stay on the device and the sink is not called. StepItem::best has the best of each
  /// row that `logits` asks for.
  BestLogits best = {};
  /// Told after each chunk how many tokens of this call have been evaluated; false stops as `stop`
  /// does.
  std::function<bool(int64_t evaluated)> progress = {};
  /// Prompt or decode: decides which experts stay in the cache and are read ahead. Does not
  /// change the results.
  StepPhase phase = StepPhase::kPrompt;
};

/// Receives f32 [rows, vocab_size], the first row belonging to the token at `first_position`.
using LogitsSink = std::function<Status(int64_t first_position, std::span<const float> rows)>;
/// Receives f32 [rows, hidden_size] in the same way.
using HiddenSink = LogitsSink;

/// The work of eval_step() for one sequence, and how it ended.
struct StepItem {
  Sequence* sequence = nullptr;
  std::span<const TokenId> tokens = {};
  EvalOptions options = {};
  LogitsSink sink = {};
  HiddenSink hidden_sink = {};  // as options.hidden asks; before `sink`, between steps
  Status outcome = {};
  /// As options.best asks, options.best.count for each row unless that is ruled: best first, equal
  /// ones in the order of ids, what is not a number before all others. Less work than reading whole
  /// rows.
  std::vector<TokenLogit> best = {};
};

class Engine {
 public:
  /// The device must outlive the engine.
  static Result<std::unique_ptr<Engine>> open(const std::string& model_directory, Device& device,
                                              const EngineOptions& options);
  ~Engine();

  const ModelSpec& spec() const { return loaded_->spec(); }
  /// All that was loaded, for who describes it: sizes, formats, names.
  const LoadedModel& loaded() const { return *loaded_; }
  const MemoryPlan& memory_plan() const { return plan_; }
  /// Where the states of all this engine's sequences lie.
  const StateMemory& state_memory() const { return *state_memory_; }
  /// Bytes that the states of all sequences may take: what the device's own memory has left beside
  /// weights and experts, or in the host's those of one full context and half of the reserve. The
  /// expert cache makes the loss of that half good.
  uint64_t state_room_bytes() const;
  int64_t prefill_chunk() const { return prefill_chunk_; }
  /// Rows of logits that a step gives at most.
  int64_t logits_rows() const { return logits_.dim(0); }
  /// model_fingerprint() of config and weights.
  uint64_t fingerprint() const { return fingerprint_; }
  ExpertStats expert_stats() const;
  /// The experts' places and uses now. A device without memory of its own has the host's.
  ExpertMap expert_map() const;
  /// Where experts come from: its observer of routes, its capacity, less than at open once memory
  /// has run out, and, between steps, its memory to give back.
  ExpertStore& experts() { return *experts_; }
  const ExpertStore& experts() const { return *experts_; }
  /// The host's memory that all parts of the plan take at most, with a full context, half of the
  /// reserve, and the experts that lie there.
  uint64_t host_bytes() const;
  /// Sets which device computes experts from the next step on, of the ways that open() with
  /// PlanMode::kAuto found possible. Does not change the results. Fails as open() does with this
  /// plan, and keeps the one before.
  Status set_plan(PlanMode plan);
  /// The engine with its experts placed anew, as open() would; its sequences stay. Experts that the
  /// host's memory holds all of are not read again. A failure, as of open(), ends the engine.
  /// Routes forced at open begin anew and must still exist.
  static Result<std::unique_ptr<Engine>> replan(std::unique_ptr<Engine> engine,
                                                const PlanRequest& request);
  /// The reader that IoMode::kAuto became.
  friend std::string_view expert_io(const Engine& engine) { return engine.reader_->name(); }

  /// See plan/memory_plan.h: for whoever lets sequences share this engine and was given no number.
  friend int64_t usual_sequences(const Engine& engine);

  /// Adds this engine's uses to the profile it was opened with and replaces the file. Nothing
  /// happens without EngineOptions::expert_profile or where nobody counts.
  Status save_expert_profile() const;

  Result<std::unique_ptr<Sequence>> create_sequence();

  /// Appends tokens to the sequence; they have been computed when it returns. Fails with
  /// kInvalidArgument for an empty span or a token outside the vocabulary, kResourceExhausted when
  /// the context or memory is full; both leave the sequence usable, at the last whole chunk. After
  /// kIo, and where memory ran out in the middle of a step ("out of memory"), the sequence is
  /// broken at its last whole chunk: every later call fails with kFailedPrecondition until
  /// restore(), truncate() or load() succeeds.
  /// A call of eval_step() with one item, which also waits where that does not: most callers have
  /// one sequence.
  Status eval(Sequence& sequence, std::span<const TokenId> tokens, const EvalOptions& options,
              const LogitsSink& sink);
  /// eval() for several sequences at once, in steps of at most prefill_chunk() tokens of all of
  /// them: decode first, then prompts in their order. A sequence's logits are those it has alone.
  /// An item fails alone where it asks in vain, or has the sequence of an item before it. A step
  /// that fails, by kIo or "out of memory", fails and breaks every item with tokens in it. A sink
  /// is called between steps and may use no sequence of the call. Several devices may still compute
  /// tokens without logits when it returns: what comes next is behind them.
  void eval_step(std::span<StepItem> items);
  struct DraftRequest {
    TokenId token = 0;  // sampled, and not evaluated
    /// Tokens that were evaluated behind the sequence's, and lost by a restore() that keeps drafts.
    int64_t ahead = 0;
    int64_t count = 1;
    /// Behind tokens that are all right with a smaller probability than this, no more follow.
    float confidence_min = 0.0f;
    LogitsSink sink = {};  // of each draft's logits, by its position; null: nobody
  };
  /// A sequence's part of draft(), and how that ended.
  struct DraftItem {
    Sequence* sequence = nullptr;
    DraftRequest request = {};
    std::vector<TokenId> tokens = {};
    std::vector<float> confidences = {};  // of each token behind those before it, 0 to 1
  };
  /// With EngineOptions::draft_layer, for several sequences at once: up to `request.count` tokens
  /// that probably follow each of them and its `request.token`, by the model's own layer for it;
  /// none where memory is full or the context ends. Nothing is appended. Fails as a step does; the
  /// sequences stay usable.
  Status draft(std::span<DraftItem> items);
  Result<std::vector<TokenId>> draft(Sequence& sequence, const DraftRequest& request);
  /// All logits of row `row` of those that StepItem::best was chosen from, after a step of one
  /// item, while nothing else was evaluated: a view that lives until the next call. Evaluates
  /// nothing: the best do not tell whether a sampler needs the row before it has looked at them,
  /// and a step that read all rows would move a vocabulary for each token.
  Result<std::span<const float>> last_logits(int64_t row = 0);

  // After each of the following, the next logits are byte for byte those of a fresh evaluation of
  // the sequence's tokens. A call that fails, if with std::bad_alloc, leaves the sequence as it
  // was. Sequences must be this engine's own.

  /// Remembers where the sequence is, at the cost of its list of tokens: what layers remember is
  /// shared until the sequence writes to it, which then copies recurrent states and one page of
  /// keys and values a layer. Fails with kFailedPrecondition on a broken sequence.
  Result<CheckpointId> checkpoint(Sequence& sequence);
  /// Returns to a checkpoint, which stays. Mends a broken sequence. Fails with kNotFound when the
  /// sequence has no such checkpoint.
  Status restore(Sequence& sequence, CheckpointId id, RestoreOptions options = {});
  /// Forgets a checkpoint. Fails with kNotFound.
  Status drop(Sequence& sequence, CheckpointId id);
  /// Bytes that the state of a sequence of `tokens` tokens holds, if it shares none.
  uint64_t state_bytes(int64_t tokens) const;
  /// Keeps the first `position` tokens. Where layers cannot forget (recurrent state, windows that
  /// have moved on), goes back to the nearest checkpoint and evaluates the tokens between again,
  /// from the first if there is none. Mends a broken sequence. Fails with kInvalidArgument outside
  /// 0 to length(), and as eval() does.
  Status truncate(Sequence& sequence, int64_t position, std::stop_token stop = {},
                  std::function<bool(int64_t evaluated)> progress = {});
  /// A second sequence with the same past and no checkpoints; memory is shared until one of them
  /// writes. Fails with kFailedPrecondition on a broken sequence.
  Result<std::unique_ptr<Sequence>> fork(const Sequence& sequence);

  /// The sequence as bytes (docs/formats/snapshot.md), with `extra` for the caller: a sampler's
  /// state. Fails with kFailedPrecondition on a broken sequence, kInvalidArgument when `extra`
  /// exceeds kExtraBytesMax.
  Result<std::vector<std::byte>> save(const Sequence& sequence,
                                      std::span<const std::byte> extra = {});
  /// Replaces the sequence's past by a snapshot's and gives its `extra`; checkpoints stay. Fails
  /// with kCorruption for bytes that are no whole snapshot, kUnsupported for another version,
  /// kInvalidArgument for another model's, kResourceExhausted when it exceeds context or memory.
  Result<std::vector<std::byte>> load(Sequence& sequence, std::span<const std::byte> snapshot);
  /// The states that later sequences may start from.
  Prefixes& prefixes() { return prefixes_; }

 private:
  friend class Prefixes;
  class HiddenReader;
  Engine() = default;
  /// An item of eval_step() that has tokens left.
  struct RunningItem {
    StepItem* item = nullptr;
    int64_t evaluated = 0;
    // These are its part of the step at hand.
    int64_t rows = 0;
    int64_t logits_rows = 0;
    int64_t logits_begin = 0;
    int64_t hidden_begin = 0;  // in host_hidden_

    int64_t hidden_rows() const {
      const LogitsMode mode = item->options.hidden;
      if (mode == LogitsMode::kAll) return rows;
      return mode == LogitsMode::kLast && rows > 0 && rows == tokens_left() ? 1 : 0;
    }
    std::span<const TokenId> step_tokens() const {
      return item->tokens.subspan(static_cast<size_t>(evaluated), static_cast<size_t>(rows));
    }
    int64_t tokens_left() const { return static_cast<int64_t>(item->tokens.size()) - evaluated; }
    bool is_over() const { return !item->outcome.ok() || tokens_left() == 0; }
  };
  LayerId draft_layer() const { return LayerId{static_cast<int32_t>(spec().num_layers() - 1)}; }
  Status check_tokens(const Sequence& sequence, std::span<const TokenId> tokens) const;
  Status check_item(std::span<const StepItem> items, size_t at) const;
  void start_items(std::span<StepItem> items);
  void plan_step();
  void run_step();
  Status reserve(Sequence& sequence, int64_t rows);
  void fill_batch();
  void add_draft_rows(const RunningItem& running);
  void write_inputs();
  Status forward_drafts();
  struct DraftingItem {
    DraftItem* item = nullptr;
    int64_t first = 0;  // the row of its first token
    int64_t count = 0;
    double confidence = 1.0;  // of all its tokens
  };
  std::optional<DraftingItem> begin_draft(DraftItem& item);
  Status draft_together(std::span<DraftItem> items);
  Status draft_rows(std::span<DraftingItem> drafting, int64_t round);
  void end_drafts(std::vector<DraftingItem>& drafting, int64_t rounds);
  Status tell_drafts(std::span<DraftingItem> drafting, int64_t round);
  Status open_readers();
  Status begin_ngram_rows();
  Status forward();
  Status read_hidden(const Tensor& normed);
  Status read_results();
  size_t end_of_run(size_t begin) const;
  void end_step();
  void deliver(RunningItem& running);
  void deliver_hidden(const RunningItem& running);
  Status read_logits(int64_t begin, int64_t rows);
  Status read_best(std::span<const RunningItem> items);
  Status read_ruled(std::span<const RunningItem> items);
  Status read_ruled(std::span<const RunningItem> items, size_t group);
  Status choose_best(const BestLogits& best, int64_t begin, int64_t rows, const Tensor& mask = {});
  SnapshotHeader snapshot_header(int64_t tokens, uint64_t extra_bytes) const;
  Result<Past> past_of(const SnapshotView& snapshot, int64_t length);
  Status choose_steps(const ModelSpec& spec, const EngineOptions& options);
  Status take_step_buffers();
  Result<DensePlaces> place_dense(LoadedModel& counted, const EngineOptions& options,
                                  uint64_t available);
  Status place_on_device(LoadedModel& counted, const EngineOptions& options, uint64_t device_free);
  Status lengthen_steps(LoadedModel& counted, const EngineOptions& options, uint64_t available);
  Status open_layers();
  std::vector<DeviceMemory> device_memory() const;
  Status check_resident(uint64_t bytes_for_experts) const;
  Status open_experts();
  Status take_far_memory(const ExpertPlan& split);
  const ExpertTable& part_experts(size_t part) const;
  bool is_resident(size_t part) const;
  Status open_resident();
  void share_experts();
  Status open_tiered(const ExpertPlan& split, const TierOptions& tier,
                     std::span<const PartTier> parts);
  Result<std::unique_ptr<ExpertStore>> open_tiered_part(size_t part, const TierOptions& tier,
                                                        uint64_t ring_bytes);
  Status open_streamed(const ExpertPlan& split, const TierOptions& tier,
                       std::vector<PartTier> parts);
  Status force_routes();
  Result<HelperOptions> open_helper();
  Status open_networks();
  void bound_states();
  Status load_expert_profile();

  EngineOptions options_;  // as they were at open, but for plans since
  std::unique_ptr<LoadedModel> loaded_;
  MemoryPlanRequest memory_request_;
  MemoryPlan plan_;
  std::vector<size_t> part_of_layer_;      // of a device made of several
  std::vector<ExpertTable> part_experts_;  // the same; see tables_by_part(), tables_by_share()
  std::vector<double> expert_shares_;      // the same, of SplitMode::kExperts
  DevicePlan device_plan_;                 // of a device with memory of its own
  std::shared_ptr<StateMemory> state_memory_;
  MemoryPressure pressure_;
  std::string profile_path_;
  UsageProfile profile_;        // as it was at open
  int64_t planned_tokens_ = 0;  // see planned_tokens_for()
  int64_t prefill_chunk_ = 0;
  uint64_t fingerprint_ = 0;
  uint64_t checkpoints_made_ = 0;  // ids are never given twice
  Device* device_ = nullptr;
  std::unique_ptr<AsyncReader> reader_;
  std::unique_ptr<NgramRows> ngram_rows_;  // null without tables
  std::unique_ptr<LayerStream> layers_;    // null where all are in memory
  std::unique_ptr<FarNetworks> networks_;  // null where none is in the host's, and beside layers_
  std::vector<NgramRows::Text> texts_;     // of the step at hand, for it
  uint64_t scratch_bytes_ = 0;             // of encoder_
  ExpertHome home_ = ExpertHome::kDrive;
  uint64_t near_bytes_ = 0;  // planned
  // By part of the device, with all its experts; null where it or the drive has them. Empty: none.
  std::vector<std::unique_ptr<Buffer>> far_;
  uint64_t far_bytes_read_ = 0;           // for it, and in no store's statistics yet
  std::unique_ptr<ExpertHelper> helper_;  // or null
  std::unique_ptr<ExpertStore> experts_;  // uses reader_, loaded_, far_ and helper_
  std::unique_ptr<Encoder> encoder_;      // may keep leases of experts_ alive
  std::vector<std::unique_ptr<Buffer>> step_buffers_;
  // i32 [2 * prefill_chunk]: token ids, and behind them their positions; twice with a draft layer,
  // whose rows follow.
  Tensor step_inputs_;
  Tensor draft_hidden_;  // f32 [rows of best_, hidden_size], what draft() hands on
  Tensor logits_;        // f32 [rows, vocab_size]
  Tensor best_;          // of 4 bytes [2, rows, kTopRowsMax]: values, and behind them their ids
  Tensor masks_;         // i32 [rows, words of a mask]
  StepBatch batch_;
  StepBatch draft_batch_;  // of the step's rows, those of which the token before is known
  std::vector<RunningItem> running_;  // while eval_step() runs, decode first
  std::vector<float> host_logits_;
  std::vector<float> host_hidden_;
  std::vector<uint32_t> host_best_words_;  // of best_
  std::vector<uint32_t> host_masks_;
  std::vector<int32_t> host_inputs_;
  Prefixes prefixes_{*this};
};

}  // namespace moeflux
