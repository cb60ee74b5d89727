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

/// A model's layers that lie on one of several devices, or on the only one.
class PartLayers {
 public:
  PartLayers(const LoadedModel& model, const DevicePlanRequest& request, size_t part)
      : model_(model), request_(request), part_(part) {}

  bool has(std::optional<LayerId> layer) const {
    if (!layer || request_.part_of_layer.empty()) return true;
    return request_.part_of_layer[static_cast<size_t>(index(*layer))] == part_;
  }
  // The number of a layer's heads of keys or values that this device has.
  uint64_t heads_of(LayerId layer, uint64_t heads) const {
    if (heads > 1 && request_.heads_by_part) {
      const std::vector<int64_t> own = request_.heads_by_part(layer, static_cast<int64_t>(heads));
      if (!own.empty()) return static_cast<uint64_t>(own[part_]);
    }
    return has(layer) ? heads : 0;
  }
  uint64_t state_bytes(bool only_kept) const {
    uint64_t bytes = 0;
    int32_t l = 0;
    for (LayerStateSpec layer : model_.states()) {
      const LayerId id{l++};
      if (only_kept) {
        std::erase_if(layer.tensors, [](const StateTensor& tensor) { return !stays_near(tensor); });
      }
      for (const StateTensor& tensor : layer.tensors) {
        const uint64_t held =
            SequenceState::bytes_held({{tensor}}, request_.context_length, request_.step_tokens);
        const auto heads = static_cast<uint64_t>(tensor.num_own_heads());
        bytes += held / heads * heads_of(id, heads);
      }
    }
    return bytes;
  }
  uint64_t dense_bytes() const {
    uint64_t bytes = model_.dense.placed_bytes;
    int32_t l = 0;
    for (const uint64_t of_layer : model_.dense.layer_bytes) {
      if (!has(LayerId{l++})) bytes -= of_layer;
    }
    return bytes;
  }
  // The least device memory for experts: near slots, of which each device has its share, and room
  // for the experts of one token.
  uint64_t experts_least() const {
    int64_t per_token = 0;
    for (const LayerSpec& layer : model_.spec().layers) {
      if (layer.moe.num_experts > 0) per_token = std::max(per_token, layer.moe.experts_per_token);
    }
    uint64_t experts = 0;
    for (size_t l = 0; l < model_.experts.layers.size(); ++l) {
      if (!has(LayerId{static_cast<int32_t>(l)})) continue;
      experts += static_cast<uint64_t>(model_.experts.layers[l].num_experts);
    }
    const uint64_t slot = model_.experts.slot_bytes_max();
    const uint64_t near = request_.near_cache_bytes.value_or(kNearSlotsLeast * slot) /
                          std::max<size_t>(1, request_.free_by_part.size());
    return std::min(near + static_cast<uint64_t>(per_token) * slot, experts * slot);
  }

 private:
  const LoadedModel& model_;
  const DevicePlanRequest& request_;
  size_t part_;
};

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

// With what goes in, logits and keys that are listed.
Result<uint64_t> step_scratch_bytes(const LoadedModel& model, int64_t context, int64_t tokens) {
  const int64_t rows = logits_rows_max(model.spec(), tokens);
  MF_ASSIGN_OR_RETURN(const DryRun needed, dry_run(*model.model, tokens, rows));
  return needed.scratch_bytes + step_buffers_bytes(model.spec(), tokens) +
         listed_keys_bytes(model.spec(), model.cache_types, context);
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

/// Needs of a device, and the parts of `order` that they list.
struct PartNeeds {
  DeviceNeeds needs;
  std::vector<size_t> listed;
};

PartNeeds needs_of(const LoadedModel& model, const DevicePlanRequest& request,
                   std::span<const Part> order, uint64_t scratch_bytes, size_t number) {
  const bool is_one = request.free_by_part.empty();
  const PartLayers layers(model, request, number);
  PartNeeds part;
  DeviceNeeds& needs = part.needs;
  needs.free_bytes = is_one ? request.free_bytes : request.free_by_part[number];
  needs.scratch_bytes = scratch_bytes;
  needs.dense_kept_bytes = layers.dense_bytes();
  for (size_t i = 0; i < order.size(); ++i) {
    if (!layers.has(model.modules[order[i].modules.front()].beside)) continue;
    needs.dense_parts.push_back(order[i].bytes);
    needs.dense_kept_bytes -= order[i].bytes;
    part.listed.push_back(i);
  }
  needs.has_table =
      model.dense.lookup_bytes > 0 && !part.listed.empty() && part.listed.front() == 0;
  needs.state_kept_bytes = layers.state_bytes(/*only_kept=*/true);
  needs.state_pages_bytes = layers.state_bytes(/*only_kept=*/false) - needs.state_kept_bytes;
  needs.experts_least_bytes = layers.experts_least();
  return part;
}

// Modules on the host, by what each part of the device gives up: what belongs to no layer leaves
// them all.
DensePlaces places_of(const LoadedModel& model, const DevicePlanRequest& request,
                      std::span<const Part> order, const std::vector<bool>& leaves) {
  DensePlaces dense;
  dense.on_host.resize(model.modules.size());
  for (size_t i = 0; i < order.size(); ++i) {
    if (!leaves[i]) continue;
    for (const size_t module : order[i].modules) dense.on_host[module] = true;
    dense.host_bytes += order[i].bytes;
  }
  dense.device_bytes = model.dense.placed_bytes - dense.host_bytes;
  dense.part_bytes.resize(request.free_by_part.size());
  if (dense.part_bytes.empty()) return dense;
  for (size_t l = 0; l < model.dense.layer_bytes.size(); ++l) {
    dense.part_bytes[request.part_of_layer[l]] += model.dense.layer_bytes[l];
  }
  for (size_t i = 0; i < model.modules.size(); ++i) {
    const std::optional<LayerId> layer = model.modules[i].beside;
    if (!layer || !dense.on_host[i]) continue;
    dense.part_bytes[request.part_of_layer[static_cast<size_t>(index(*layer))]] -=
        model.modules[i].placed_bytes;
  }
  dense.device_bytes -= sum(dense.part_bytes);
  return dense;
}

Result<DevicePlan> plan_step(const LoadedModel& model, const DevicePlanRequest& request) {
  const int64_t n = request.step_tokens;
  const size_t count = std::max<size_t>(1, request.free_by_part.size());
  const std::vector<Part> order = leaving_order(model);
  DevicePlan plan;
  plan.step_tokens = n;
  plan.listed_bytes = listed_keys_bytes(model.spec(), model.cache_types, request.context_length);
  MF_ASSIGN_OR_RETURN(const uint64_t scratch, step_scratch_bytes(model, request.context_length, n));
  plan.share.scratch_bytes = scratch;
  std::vector<bool> leaves(order.size());
  for (size_t p = 0; p < count; ++p) {
    auto [needs, listed] = needs_of(model, request, order, scratch, p);
    Result<DeviceSplit> split = split_device(needs);
    if (!split.ok()) {
      return count == 1 ? split.error()
                        : split.error().with_context(formatted("number {} of {}", p + 1, count));
    }
    // Copies take room from what is copied; where there is none, networks are read in place.
    const uint64_t copies =
        count > 1 ? 0 : networks_bytes(std::span(order).first(split->parts_on_host));
    if (request.copies_beside && copies > 0) {
      needs.scratch_bytes += copies;
      Result<DeviceSplit> beside = split_device(needs);
      if (beside.ok()) {
        split = std::move(beside);
        plan.networks_bytes = copies;
        plan.share.scratch_bytes += copies;
      } else {
        needs.scratch_bytes -= copies;
      }
    }
    uint64_t dense = needs.dense_kept_bytes + sum(needs.dense_parts);
    for (size_t i = 0; i < split->parts_on_host; ++i) {
      leaves[listed[i]] = true;
      dense -= needs.dense_parts[i];
    }
    plan.parts.push_back({.dense_bytes = dense,
                          .scratch_bytes = needs.scratch_bytes,
                          .state_bytes = needs.state_kept_bytes + split->state_page_bytes,
                          .state_kept_bytes = needs.state_kept_bytes,
                          .reserve_bytes = device_reserve(needs.free_bytes)});
    plan.share.state_bytes += plan.parts.back().state_bytes;
  }
  plan.dense = places_of(model, request, order, leaves);
  plan.share.dense_bytes = model.dense.placed_bytes - plan.dense.host_bytes;
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

Result<uint64_t> part_scratch_bytes(const LoadedModel& counted, int64_t context_length,
                                    int64_t step_tokens) {
  return step_scratch_bytes(counted, context_length, step_tokens);
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
