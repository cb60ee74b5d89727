#include "plan/device_plan.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/format.h"
#include "load/far_networks.h"
#include "plan/dry_run.h"

namespace moeflux {
namespace {

constexpr uint64_t kReserveBytesMin = kMiB;
// So many experts near the device are worth more than as many bytes of anything else: without any,
// what most tokens use crosses the bus for each of them.
constexpr uint64_t kNearSlotsLeast = 16;
// Fewer tokens in a step save little scratch.
constexpr int64_t kStepTokensLeast = 32;

uint64_t sum(const std::vector<uint64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
}

// Tensors of a fixed size are written by every step. Pages of a window are read by every token,
// however long the text has become.
bool stays_near(const StateTensor& tensor) { return !tensor.is_per_token() || tensor.window > 0; }

uint64_t state_bytes(const LoadedModel& model, const DevicePlanRequest& request, bool only_kept) {
  uint64_t bytes = 0;
  for (LayerStateSpec layer : model.states()) {
    if (only_kept) {
      std::erase_if(layer.tensors, [](const StateTensor& tensor) { return !stays_near(tensor); });
    }
    bytes += SequenceState::bytes_held(layer, request.context_length, request.step_tokens);
  }
  return bytes;
}

// The least device memory for experts: near slots, and room for the experts of one token.
uint64_t experts_least(const LoadedModel& model, std::optional<uint64_t> wanted) {
  int64_t per_token = 0;
  for (const LayerSpec& layer : model.spec().layers) {
    if (layer.moe.num_experts > 0) per_token = std::max(per_token, layer.moe.experts_per_token);
  }
  const uint64_t slot = model.experts.slot_bytes_max();
  return std::min(wanted.value_or(kNearSlotsLeast * slot) + static_cast<uint64_t>(per_token) * slot,
                  model.experts.num_experts_total() * slot);
}

/// Modules that leave the device at once: one, or those of a network.
struct Part {
  std::vector<size_t> modules;
  uint64_t bytes = 0;
  bool is_network = false;
  LayerId layer{};  // of a network
};

// In the order of claims.
std::vector<Part> parts_of(const LoadedModel& model) {
  const bool has_experts = model.experts.num_experts_total() > 0;
  std::vector<Part> parts;
  for (size_t i = 0; i < model.modules.size(); ++i) {
    const ClaimedModule& module = model.modules[i];
    const std::optional<LayerId> layer = module.layer();
    const bool is_network = module.is_network && layer && !has_experts;
    const bool goes_on =
        is_network && !parts.empty() && parts.back().is_network && parts.back().layer == *layer;
    if (!goes_on) parts.push_back({.is_network = is_network, .layer = layer.value_or(LayerId{})});
    parts.back().modules.push_back(i);
    parts.back().bytes += module.placed_bytes;
  }
  return parts;
}

// The bits of a layer's number in reverse: any number of layers, taken in this order, lie evenly.
uint32_t spread_rank(LayerId layer) {
  auto number = static_cast<uint32_t>(index(layer));
  uint32_t reversed = 0;
  for (int bit = 0; bit < 32; ++bit, number >>= 1u) reversed = reversed << 1u | (number & 1u);
  return reversed;
}

// Parts in the order in which they leave the device. The head comes after the table: of a prompt,
// only the last token reads it.
std::vector<Part> leaving_order(const LoadedModel& model) {
  std::vector<Part> order = parts_of(model);
  std::ranges::reverse(order);
  const auto rank = [&](const Part& part) -> std::pair<int, uint32_t> {
    if (part.is_network) return {1, spread_rank(part.layer)};
    const std::string& name = model.modules[part.modules.front()].canonical;
    if (name == "embed_tokens") return {model.dense.lookup_bytes > 0 ? 0 : 2, 0};
    return {name == "lm_head" ? 2 : 3, 0};
  };
  std::ranges::stable_sort(order, {}, rank);
  return order;
}

/// The most of those that leave, times the places for copies of them; 0 where none leaves.
uint64_t networks_bytes(std::span<const Part> leaving) {
  uint64_t most = 0;
  for (const Part& part : leaving) most = std::max(most, part.is_network ? part.bytes : 0);
  return kNetworkSlots * most;
}

Error refusal(const DeviceNeeds& needs, uint64_t least, uint64_t reserve) {
  return make_error(
      ErrorCode::kResourceExhausted,
      "{} of its memory are free, expected at least {}, with all other weights, keys and values in "
      "the host's: {} for a step, {} for norms and vectors, {} for what every step writes of a "
      "sequence, {} for experts and {} left free",
      format_bytes(needs.free_bytes), format_bytes(least), format_bytes(needs.scratch_bytes),
      format_bytes(needs.dense_kept_bytes), format_bytes(needs.state_kept_bytes),
      format_bytes(needs.experts_least_bytes), format_bytes(reserve));
}

// Each of several devices has a copy of what belongs to no layer, and two of scratch: that which
// all operations see, and its encoder's own.
void count_copies(const LoadedModel& model, size_t devices, DeviceNeeds& needs) {
  needs.scratch_bytes *= 2 * devices;
  for (const ClaimedModule& module : model.modules) {
    if (!module.layer()) needs.dense_kept_bytes += (devices - 1) * module.placed_bytes;
  }
}

Result<DevicePlan> plan_step(const LoadedModel& model, const DevicePlanRequest& request) {
  const int64_t n = request.step_tokens;
  const int64_t rows = logits_rows_max(model.spec(), n);
  MF_ASSIGN_OR_RETURN(const DryRun needed, dry_run(*model.model, n, rows));
  const std::vector<Part> order = leaving_order(model);
  DeviceNeeds needs;
  needs.free_bytes = request.free_bytes;
  const uint64_t listed =
      listed_keys_bytes(model.spec(), model.cache_types, request.context_length);
  needs.scratch_bytes = needed.scratch_bytes + step_buffers_bytes(model.spec(), n) + listed;
  needs.dense_kept_bytes = model.dense.placed_bytes;
  for (const Part& part : order) {
    needs.dense_parts.push_back(part.bytes);
    needs.dense_kept_bytes -= part.bytes;
  }
  needs.has_table = model.dense.lookup_bytes > 0;
  if (request.devices > 1) count_copies(model, request.devices, needs);
  needs.state_kept_bytes = state_bytes(model, request, /*only_kept=*/true);
  needs.state_pages_bytes =
      state_bytes(model, request, /*only_kept=*/false) - needs.state_kept_bytes;
  needs.experts_least_bytes = experts_least(model, request.near_cache_bytes);
  MF_ASSIGN_OR_RETURN(DeviceSplit split, split_device(needs));

  DevicePlan plan;
  // Copies take room from what is copied; where there is none, networks are read in place.
  const uint64_t copies = networks_bytes(std::span(order).first(split.parts_on_host));
  if (request.copies_beside && copies > 0) {
    needs.scratch_bytes += copies;
    const Result<DeviceSplit> beside = split_device(needs);
    if (beside.ok()) {
      split = *beside;
      plan.networks_bytes = copies;
    } else {
      needs.scratch_bytes -= copies;
    }
  }
  plan.step_tokens = n;
  plan.listed_bytes = listed;
  plan.state_kept_bytes = needs.state_kept_bytes;
  plan.reserve_bytes = device_reserve(request.free_bytes);
  plan.dense.on_host.resize(model.modules.size());
  for (size_t i = 0; i < split.parts_on_host; ++i) {
    for (const size_t module : order[i].modules) plan.dense.on_host[module] = true;
    plan.dense.host_bytes += needs.dense_parts[i];
  }
  plan.dense.device_bytes = model.dense.placed_bytes - plan.dense.host_bytes;
  plan.share = {.dense_bytes = plan.dense.device_bytes,
                .state_bytes = needs.state_kept_bytes + split.state_page_bytes,
                .scratch_bytes = needs.scratch_bytes};
  return plan;
}

}  // namespace

uint64_t device_reserve(uint64_t free_bytes) {
  return std::clamp(free_bytes / 8, kReserveBytesMin, kDeviceReserveBytes);
}

Result<DeviceSplit> split_device(const DeviceNeeds& needs) {
  const uint64_t reserve = device_reserve(needs.free_bytes);
  const uint64_t least = needs.scratch_bytes + needs.dense_kept_bytes + needs.state_kept_bytes +
                         needs.experts_least_bytes + reserve;
  if (least > needs.free_bytes) return refusal(needs, least, reserve);
  const uint64_t left = needs.free_bytes - least;
  uint64_t dense = sum(needs.dense_parts);
  DeviceSplit split;
  const auto move_next = [&] { dense -= needs.dense_parts[split.parts_on_host++]; };
  if (needs.has_table && dense + needs.state_pages_bytes > left) move_next();
  while (dense > left) move_next();
  split.state_page_bytes = std::min(needs.state_pages_bytes, left - dense);
  return split;
}

Result<DevicePlan> plan_device(const LoadedModel& counted, const DevicePlanRequest& request) {
  DevicePlanRequest smaller = request;
  while (true) {
    Result<DevicePlan> plan = plan_step(counted, smaller);
    const bool is_short = !plan.ok() && plan.error().code() == ErrorCode::kResourceExhausted;
    if (!is_short || !request.step_may_shrink || smaller.step_tokens <= kStepTokensLeast) {
      return plan;
    }
    smaller.step_tokens = std::max(kStepTokensLeast, smaller.step_tokens / 2);
  }
}

}  // namespace moeflux
