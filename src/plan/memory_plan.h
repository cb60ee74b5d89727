// Divides memory among dense weights, sequence state, scratch, reads on their way and a reserve;
// the expert cache gets the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/units.h"
#include "load/model_loader.h"

namespace moeflux {

/// The part of a model that lies in a device's own memory, not in the host's.
struct DeviceShare {
  uint64_t dense_bytes = 0;
  uint64_t state_bytes = 0;
  uint64_t scratch_bytes = 0;

  uint64_t total_bytes() const { return dense_bytes + state_bytes + scratch_bytes; }
};

struct MemoryPlan {
  uint64_t dense_bytes = 0;       // with the ring of layers that are streamed
  uint64_t streamed_bytes = 0;    // of layers, beside these, that each step reads from the drive
  uint64_t state_bytes = 0;       // of a sequence, set aside; see MemoryPlanRequest
  uint64_t scratch_bytes = 0;     // activations of one prefill chunk, and logits
  uint64_t listed_bytes = 0;      // of these: where a device gathers the keys that tokens list
  uint64_t reader_bytes = 0;      // where bytes land that are not read into their slots
  uint64_t table_rows_bytes = 0;  // of a step: rows of tables that stay on the drive
  uint64_t reserve_bytes = 0;     // left free; see memory_reserve()
  uint64_t experts_bytes = 0;     // all of them, were they resident
  uint64_t expert_slot_bytes = 0;
  uint64_t expert_cache_bytes = 0;    // limit of the cache
  uint64_t cold_bytes_per_token = 0;  // read per decoded token when nothing is cached
  int64_t context_length = 0;         // tokens that fit a sequence
  uint64_t context_bytes = 0;         // of their state
  uint64_t sequences_bytes = 0;       // of further sequences' states, beyond half of the reserve
  uint64_t available_bytes = 0;       // of the host, before the dense weights were loaded
  DeviceShare on_device;              // of the first three; no more than they are

  /// Bytes of the host's memory for all parts beside the experts, the reserve included.
  uint64_t taken_bytes() const;
  bool streams() const { return expert_cache_bytes < experts_bytes; }
  /// True when at least one expert fits beside them.
  bool fits() const { return available_bytes >= taken_bytes() + expert_slot_bytes; }
};

/// Left free of what is available, for all that is not counted:
/// - the program, its tokenizer and threads;
/// - page tables (a 512th of memory on small pages) and tables of pages locked for reading;
/// - the page cache that a running system needs;
/// - what other programs take before engine/memory_pressure notices.
/// None of it grows with the machine, so it is a figure and no share: 512 MiB, but no more than an
/// eighth of a small machine.
uint64_t memory_reserve(uint64_t available_bytes);

/// Bytes of a sequence's state with so many tokens, in steps of at most `step_tokens_max`.
uint64_t state_bytes(const LoadedModel& model, int64_t tokens, int64_t step_tokens_max);

/// Commands of half a megabyte in flight, where the reader has a queue: what the drive works on
/// while the engine's thread computes and nobody feeds it. A prompt's read-ahead fills it: 64
/// staging slots of 1.8 MB are 60 ms of a drive of 2 GB/s, the attention of 512 tokens.
constexpr int kReaderDepth = 256;

/// Rows of logits that a step of so many tokens computes at once: a vocabulary of 250,000 is a
/// megabyte a row, so that those of a whole prompt come in pieces.
int64_t logits_rows_max(const ModelSpec& spec, int64_t step_tokens);
/// Rows of these whose best are chosen at once.
int64_t best_rows_max(const ModelSpec& spec, int64_t step_tokens);
constexpr int64_t kMaskRowsMax = 32;
/// Rows of these whose masks are on the device at once.
int64_t mask_rows_max(const ModelSpec& spec, int64_t step_tokens);
/// Buffers of a step beside scratch(): ids, positions, logits, masks and the best of them.
uint64_t step_buffers_bytes(const ModelSpec& spec, int64_t step_tokens);

/// Bytes that a device with memory of its own takes beside scratch() to gather the keys that tokens
/// list, in a text of `tokens`. Hosts read them where they lie.
uint64_t listed_keys_bytes(const ModelSpec& spec, const CacheTypes& types, int64_t tokens);
/// The most of these for keys of several tokens: workspace_bytes_max() of GPUs.
constexpr uint64_t kListedTogetherBytes = 64 * kMiB;

/// A context that nobody asked for may take a quarter of what experts and states share, or what all
/// experts leave of it. Its memory is taken page by page, as a text grows, and the expert cache
/// gives it up (engine/memory_pressure): until then it costs nothing. A quarter of the cache is
/// what a long text is worth: it reads all of its state for every token, at the memory's speed,
/// beside the experts that the smaller cache misses.
constexpr uint64_t kContextShare = 4;

/// Tokens for which a further sequence's state is planned, unless contexts are shorter.
constexpr int64_t kSequenceTokens = 1024;

/// Limits of the sequences that share a device.
struct SequenceRoom {
  bool is_resident = false;     // all weights and experts are in memory of the device's own
  uint64_t state_bytes = 0;     // that states of all sequences may take beside them
  uint64_t sequence_bytes = 0;  // of a state with kSequenceTokens
  int64_t rows_max = 0;         // rows of logits that a step gives
};

constexpr int64_t kUsualSequences = 4;
constexpr int64_t kSequencesMax = 256;

/// How many sequences share a model unless somebody says so: a device that holds all weights reads
/// them once for a token of each, so as many as its states and steps have room for, up to
/// kSequencesMax. Elsewhere kUsualSequences, also at least: each further sequence brings experts
/// of its own to a step from a drive or a bus, and a processor computes its row.
int64_t usual_sequences(const SequenceRoom& room);

struct MemoryPlanRequest {
  uint64_t available_bytes = 0;  // HostMemory::available_bytes before anything is loaded
  int64_t context_length = 0;    // tokens whose state is set aside, so that it is no cache's
  /// The context is what memory allows: a power of two, so that it is the same from start to start,
  /// or the model's maximum; `context_length` at least.
  bool context_may_grow = false;
  /// Sequences that share the engine. The states of all but one have half of the reserve; what they
  /// need beyond it comes out of the experts' memory, at most a quarter of it (kContextShare).
  int64_t sequences = 1;
  int64_t step_tokens_max = 0;
  uint64_t scratch_bytes = 0;                  // with logits and listed_bytes
  uint64_t listed_bytes = 0;                   // see listed_keys_bytes()
  std::optional<uint64_t> expert_cache_bytes;  // as the user asked; default: the rest
  DeviceShare on_device = {};                  // at most; nothing where memory is the host's
};

/// Bytes that the plan's other parts leave for `num_experts` experts: no more than all of them
/// take, and 0, the least that can work, where not even one fits.
uint64_t expert_cache_budget(const MemoryPlan& plan, uint64_t num_experts);

MemoryPlan plan_memory(const LoadedModel& model, const MemoryPlanRequest& request);

/// A device's own memory for experts, where it does not hold them all and the host's does.
struct TierPlan {
  uint64_t near_bytes = 0;  // of those that stay
  uint64_t ring_bytes = 0;  // that a prompt's go through
};

/// Divides what the user asked for, or what `taken_bytes`, the state of a sequence and a reserve,
/// leave of `free_bytes`.
TierPlan plan_tiers(const ExpertTable& experts, uint64_t free_bytes, uint64_t taken_bytes,
                    std::optional<uint64_t> wanted);

/// The same where the host's memory does not hold them all either: what the user asked for is
/// shared by both, half and half unless he asked for a near cache; else each takes what is free.
struct StreamTiers {
  uint64_t near_bytes = 0;
  uint64_t far_bytes = 0;
};
StreamTiers plan_stream_tiers(const TierPlan& tiers, const MemoryPlan& plan,
                              std::optional<uint64_t> wanted, bool near_is_wanted);

/// One line of what the host keeps of what is the device's otherwise; empty where that is nothing.
std::string describe_host_share(const MemoryPlan& plan);

/// Left free of a device's own memory, unless it is small: tables, workspace and the driver take
/// it.
constexpr uint64_t kDeviceReserveBytes = 512 * kMiB;

}  // namespace moeflux
