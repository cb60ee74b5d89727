#include "plan/device_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/format.h"
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

// Modules in the order in which they leave the device. The head comes after the table: of a prompt,
// only the last token reads it.
std::vector<size_t> leaving_order(const LoadedModel& model) {
  std::vector<size_t> order(model.modules.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  const auto rank = [&](size_t i) {
    const std::string& name = model.modules[i].canonical;
    if (name == "embed_tokens") return model.dense.lookup_bytes > 0 ? 0 : 1;
    return name == "lm_head" ? 1 : 2;
  };
  std::ranges::stable_sort(order, {}, rank);
  return order;
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

Result<DevicePlan> plan_step(const LoadedModel& model, const DevicePlanRequest& request) {
  const int64_t n = request.step_tokens;
  const int64_t rows = logits_rows_max(model.spec(), n);
  MF_ASSIGN_OR_RETURN(const DryRun needed, dry_run(*model.model, n, rows));
  const std::vector<size_t> order = leaving_order(model);
  DeviceNeeds needs;
  needs.free_bytes = request.free_bytes;
  const uint64_t listed =
      listed_keys_bytes(model.spec(), model.cache_types, request.context_length);
  needs.scratch_bytes = needed.scratch_bytes + step_buffers_bytes(model.spec(), n) + listed;
  needs.dense_kept_bytes = model.dense.placed_bytes;
  for (const size_t i : order) {
    needs.dense_parts.push_back(model.modules[i].placed_bytes);
    needs.dense_kept_bytes -= model.modules[i].placed_bytes;
  }
  needs.has_table = model.dense.lookup_bytes > 0;
  needs.state_kept_bytes = state_bytes(model, request, /*only_kept=*/true);
  needs.state_pages_bytes =
      state_bytes(model, request, /*only_kept=*/false) - needs.state_kept_bytes;
  needs.experts_least_bytes = experts_least(model, request.near_cache_bytes);
  MF_ASSIGN_OR_RETURN(const DeviceSplit split, split_device(needs));

  DevicePlan plan;
  plan.step_tokens = n;
  plan.listed_bytes = listed;
  plan.state_kept_bytes = needs.state_kept_bytes;
  plan.reserve_bytes = device_reserve(request.free_bytes);
  plan.dense.on_host.resize(model.modules.size());
  for (size_t i = 0; i < split.parts_on_host; ++i) {
    plan.dense.on_host[order[i]] = true;
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
