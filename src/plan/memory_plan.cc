#include "plan/memory_plan.h"

#include <algorithm>

#include "backend/listed_keys.h"
#include "base/format.h"
#include "experts/drive/expert_fetch.h"
#include "experts/stores/tiered_expert_store.h"
#include "io/reader_factory.h"
#include "load/ngram_rows.h"

namespace moeflux {
namespace {

// For every thousand tokens of a step, up to four: devices with much memory have long steps, and in
// one of them a token of each of 256 requests, whose layers are read once. Steps that are longer
// for the experts that they bring have no more requests.
constexpr uint64_t kLogitsBytesMax = 64 * kMiB;
constexpr int64_t kLogitsTokens = 1024;
constexpr int64_t kLogitsTimesMax = 4;
constexpr int64_t kBestRowsMax = 256;
constexpr uint64_t kReserveBytesMax = 512 * kMiB;

// Experts read into their slots need a chunk for each read that does not begin where its slot does.
uint64_t reader_bytes(const ExpertTable& experts) {
  const bool any_as_stored = std::ranges::any_of(experts.layers, [](const ExpertLayer& layer) {
    return layer.num_experts > 0 && layer.arrangement == ExpertArrangement::kAsStored;
  });
  const uint64_t chunks = any_as_stored ? kReaderDepth * ReaderOptions{}.chunk_bytes : 0;
  return chunks + landing_memory_bytes(experts);
}

// See kContextShare. `plan` has all parts but the experts.
int64_t context_within(const LoadedModel& model, const MemoryPlanRequest& request,
                       const MemoryPlan& plan) {
  const uint64_t taken = plan.taken_bytes() - plan.state_bytes + plan.on_device.state_bytes;
  const uint64_t shared = plan.available_bytes > taken ? plan.available_bytes - taken : 0;
  const uint64_t experts = std::max(
      plan.expert_slot_bytes, request.expert_cache_bytes.value_or(
                                  plan.expert_slot_bytes * model.experts.num_experts_total()));
  const uint64_t beside = shared > experts ? shared - experts : 0;
  // A cache of a size that was asked for does not give anything up by plan.
  const uint64_t share = request.expert_cache_bytes ? 0 : shared / kContextShare;
  const uint64_t bytes = std::max(beside, share) + plan.on_device.state_bytes;
  const int64_t longest = model.spec().max_position_embeddings;
  const auto fits = [&](int64_t tokens) {
    return state_bytes(model, tokens, request.step_tokens_max) <= bytes;
  };
  if (fits(longest)) return longest;
  int64_t tokens = request.context_length;
  for (int64_t next = 1; next <= longest; next *= 2) {
    if (next > tokens && fits(next)) tokens = next;
  }
  return tokens;
}

// See MemoryPlanRequest::sequences. `plan` has all parts but the experts. Where states lie in a
// device's memory, the host's has none.
uint64_t further_states(const LoadedModel& model, const MemoryPlanRequest& request,
                        const MemoryPlan& plan) {
  if (request.sequences <= 1 || plan.on_device.state_bytes > 0) return 0;
  const int64_t tokens = std::min(request.context_length, kSequenceTokens);
  const uint64_t wanted = static_cast<uint64_t>(request.sequences - 1) *
                          state_bytes(model, tokens, request.step_tokens_max);
  const uint64_t half = plan.reserve_bytes / 2;
  const uint64_t taken = plan.taken_bytes();
  const uint64_t experts = plan.available_bytes > taken ? plan.available_bytes - taken : 0;
  return std::min(wanted > half ? wanted - half : 0, experts / kContextShare);
}

// A bus takes 10 to 20 ms for so many bytes, longer than a layer's other work lasts for some
// thousand tokens.
constexpr uint64_t kRingBytesUseful = 512 * kMiB;

// Parts of a ring that keep the bus busy while a layer's other work frees none: all experts that a
// layer lacks arrive, and some compute. Near slots lose what large experts would take for more than
// a few waves.
uint64_t ring_parts_wanted(const ExpertTable& experts, uint64_t near_bytes) {
  const auto layers = static_cast<uint64_t>(std::ranges::count_if(
      experts.layers, [](const ExpertLayer& l) { return l.num_experts > 0; }));
  const uint64_t part = ring_part(experts);
  const uint64_t slot_bytes = experts.slot_bytes_max();
  const uint64_t all = experts.num_experts_total();
  const uint64_t far = all - std::min(all, near_bytes / slot_bytes);
  const uint64_t of_a_layer = round_up(far, layers * part) / (layers * part);
  const uint64_t useful = kRingBytesUseful / (part * slot_bytes);
  return std::min(
      {uint64_t{kRingPartsMax}, std::max(uint64_t{kRingWaves}, useful), 1 + of_a_layer});
}

}  // namespace

uint64_t state_bytes(const LoadedModel& model, int64_t tokens, int64_t step_tokens_max) {
  uint64_t bytes = 0;
  for (const LayerStateSpec& layer : model.states()) {
    bytes += SequenceState::bytes_held(layer, tokens, step_tokens_max);
  }
  return bytes;
}

int64_t usual_sequences(const SequenceRoom& room) {
  if (!room.is_resident) return kUsualSequences;
  const uint64_t fit = room.state_bytes / std::max<uint64_t>(1, room.sequence_bytes);
  const int64_t most = std::clamp(room.rows_max, kUsualSequences, kSequencesMax);
  return std::max(kUsualSequences,
                  static_cast<int64_t>(std::min(fit, static_cast<uint64_t>(most))));
}

uint64_t memory_reserve(uint64_t available_bytes) {
  return std::min(kReserveBytesMax, available_bytes / 8);
}

int64_t logits_rows_max(const ModelSpec& spec, int64_t step_tokens) {
  const auto row_bytes = static_cast<uint64_t>(spec.vocab_size) * sizeof(float);
  const auto times =
      static_cast<uint64_t>(std::clamp<int64_t>(step_tokens / kLogitsTokens, 1, kLogitsTimesMax));
  const auto rows = static_cast<int64_t>(times * kLogitsBytesMax / row_bytes);
  return std::clamp<int64_t>(rows, 1, step_tokens);
}

int64_t best_rows_max(const ModelSpec& spec, int64_t step_tokens) {
  return std::min(logits_rows_max(spec, step_tokens), kBestRowsMax);
}

int64_t mask_rows_max(const ModelSpec& spec, int64_t step_tokens) {
  return std::min(best_rows_max(spec, step_tokens), kMaskRowsMax);
}

uint64_t step_buffers_bytes(const ModelSpec& spec, int64_t step_tokens) {
  const int64_t inputs = (spec.draft_layers > 0 ? 4 : 2) * step_tokens;
  const int64_t rows = best_rows_max(spec, step_tokens);
  const int64_t drafted = spec.draft_layers > 0 ? rows * spec.draft_width() : 0;
  const int64_t words = inputs + drafted + 2 * kTopRowsMax * rows +
                        mask_rows_max(spec, step_tokens) * mask_words(spec.vocab_size) +
                        logits_rows_max(spec, step_tokens) * spec.vocab_size;
  return static_cast<uint64_t>(words) * sizeof(float);
}

// A buffer that is too small stays until the device is done with it. The next has twice its size,
// so all of them together may have four times what one token's keys need. Keys of several tokens
// come on top.
uint64_t listed_keys_bytes(const ModelSpec& spec, const CacheTypes& types, int64_t tokens) {
  uint64_t most = 0;
  for (const LayerSpec& layer : spec.layers) {
    uint64_t chosen = 0;
    for (const StateTensor& tensor : layer.mixer->state(types).tensors) {
      chosen += listed_page_tokens(static_cast<uint64_t>(tensor.tokens_read)) * tensor.bytes();
    }
    most = std::max({most, chosen, layer.mixer->listed_bytes(tokens, types)});
  }
  return 4 * most + std::min(most * static_cast<uint64_t>(tokens), kListedTogetherBytes);
}

std::string describe_host_share(const MemoryPlan& plan) {
  std::string text;
  const auto add = [&](uint64_t all, uint64_t on_device, std::string_view of) {
    if (on_device >= all) return;
    text += formatted("{}{} of {} of {}", text.empty() ? "the host keeps " : ", ",
                      format_bytes(all - on_device), format_bytes(all), of);
  };
  if (plan.on_device.total_bytes() == 0) return text;
  add(plan.dense_bytes, plan.on_device.dense_bytes, "dense weights");
  add(plan.state_bytes, plan.on_device.state_bytes,
      plan.state_bytes < plan.context_bytes ? "a sequence's state" : "a full context's state");
  return text;
}

uint64_t MemoryPlan::taken_bytes() const {
  const uint64_t parts = dense_bytes + state_bytes + sequences_bytes + scratch_bytes +
                         reader_bytes + table_rows_bytes + reserve_bytes;
  return parts - on_device.total_bytes();
}

uint64_t expert_cache_budget(const MemoryPlan& plan, uint64_t num_experts) {
  const uint64_t taken = plan.taken_bytes();
  const uint64_t left = plan.available_bytes > taken ? plan.available_bytes - taken : 0;
  const uint64_t bytes = std::min(left, plan.expert_slot_bytes * num_experts);
  return bytes < plan.expert_slot_bytes ? 0 : bytes;
}

// The ring takes no more than a quarter, and nothing where that is not even two parts.
TierPlan plan_tiers(const ExpertTable& experts, uint64_t free_bytes, uint64_t taken_bytes,
                    std::optional<uint64_t> wanted) {
  const uint64_t bytes = wanted.value_or(free_bytes > taken_bytes ? free_bytes - taken_bytes : 0);
  const uint64_t part = ring_part(experts) * experts.slot_bytes_max();
  const uint64_t parts =
      part == 0 ? 0 : std::min(ring_parts_wanted(experts, bytes), bytes / 4 / part);
  TierPlan plan;
  plan.ring_bytes = parts < 2 ? 0 : parts * part;
  plan.near_bytes = bytes - plan.ring_bytes;
  return plan;
}

// Reads arrive in the host's memory: an eighth is its share at least. Whole experts.
StreamTiers plan_stream_tiers(const TierPlan& tiers, const MemoryPlan& plan,
                              std::optional<uint64_t> wanted, bool near_is_wanted) {
  const uint64_t near = tiers.near_bytes + tiers.ring_bytes;
  if (!wanted || plan.expert_slot_bytes == 0) return {near, plan.expert_cache_bytes};
  const uint64_t share = std::min(near, near_is_wanted ? *wanted - *wanted / 8 : *wanted / 2);
  StreamTiers split;
  split.near_bytes = share / plan.expert_slot_bytes * plan.expert_slot_bytes;
  split.far_bytes = *wanted - split.near_bytes;
  if (split.far_bytes < plan.expert_slot_bytes) split = {0, *wanted};
  return split;
}

MemoryPlan plan_memory(const LoadedModel& model, const MemoryPlanRequest& request) {
  MemoryPlan plan;
  plan.available_bytes = request.available_bytes;
  plan.dense_bytes = model.dense.bytes;
  plan.streamed_bytes = model.dense.streamed_bytes;
  plan.scratch_bytes = request.scratch_bytes;
  plan.listed_bytes = request.listed_bytes;
  plan.reader_bytes = reader_bytes(model.experts);
  plan.table_rows_bytes =
      NgramRows::memory_bytes(model.ngram_tables, request.step_tokens_max, kReaderDepth);
  plan.reserve_bytes = memory_reserve(request.available_bytes);
  plan.state_bytes = state_bytes(model, request.context_length, request.step_tokens_max);
  plan.on_device = {.dense_bytes = std::min(request.on_device.dense_bytes, plan.dense_bytes),
                    .state_bytes = std::min(request.on_device.state_bytes, plan.state_bytes),
                    .scratch_bytes = std::min(request.on_device.scratch_bytes, plan.scratch_bytes)};
  plan.sequences_bytes = further_states(model, request, plan);
  plan.experts_bytes = model.experts.bytes_total();
  plan.expert_slot_bytes = model.experts.slot_bytes_max();
  for (size_t i = 0; i < model.experts.layers.size(); ++i) {
    const ExpertLayer& layer = model.experts.layers[i];
    if (layer.num_experts == 0) continue;
    plan.cold_bytes_per_token +=
        static_cast<uint64_t>(model.spec().layers[i].moe.experts_per_token) *
        layer.bytes_per_expert();
  }
  plan.context_length =
      request.context_may_grow ? context_within(model, request, plan) : request.context_length;
  plan.context_bytes = state_bytes(model, plan.context_length, request.step_tokens_max);
  plan.expert_cache_bytes = request.expert_cache_bytes.value_or(
      expert_cache_budget(plan, model.experts.num_experts_total()));
  return plan;
}

}  // namespace moeflux
