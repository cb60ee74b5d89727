// How an engine's experts are placed, and who computes them: at open and anew.
#include <algorithm>
#include <array>
#include <utility>

#include "base/format.h"
#include "engine/engine.h"
#include "experts/routes/forced_routes.h"
#include "experts/stores/resident_expert_store.h"
#include "experts/stores/split_expert_store.h"
#include "experts/stores/streamed_expert_store.h"
#include "experts/stores/tiered_expert_store.h"

namespace moeflux {
namespace {

TokenDemand token_demand(const ModelSpec& spec) {
  TokenDemand demand;
  for (const LayerSpec& layer : spec.layers) {
    if (layer.moe.num_experts == 0) continue;
    demand.per_token += layer.moe.experts_per_token;
    demand.per_layer = std::max(demand.per_layer, layer.moe.experts_per_token);
  }
  return demand;
}

// True when both devices compute every expert of the table with the same bits.
bool same_bits(const Device& device, const Device& helper, const ExpertTable& experts) {
  if (&device == &helper) return true;
  return std::ranges::all_of(experts.layers, [&](const ExpertLayer& layer) {
    if (layer.num_experts == 0) return true;
    const std::array matrices = {&layer.gate, &layer.up, &layer.down};
    return std::ranges::all_of(matrices, [&](const Weight* matrix) {
      if (matrix->rows == 0) return true;
      return device.multiplies_units(*matrix) && helper.multiplies_units(*matrix);
    });
  });
}

// The same of networks for every token.
bool same_bits(const Device& device, const Device& helper, std::span<const FarNetwork> networks) {
  return std::ranges::all_of(networks, [&](const FarNetwork& network) {
    const GluWeights& w = network.weights;
    const std::array matrices = {&w.gate, &w.up, &w.down};
    return std::ranges::all_of(matrices, [&](const Weight* matrix) {
      return device.multiplies_units(*matrix) && helper.multiplies_units(*matrix);
    });
  });
}

// A bound for a cache where all of them were refused: at least one fits.
uint64_t half_of_experts(const MemoryPlan& plan) {
  return std::max(plan.experts_bytes / 2, plan.expert_slot_bytes);
}

void warn_of_drive(const EngineOptions& options, const MemoryPlan& plan, const Error& refusal) {
  if (!options.on_warning) return;
  options.on_warning(formatted(
      "{} of {} of experts fit in host memory, the others come from the drive: {}",
      format_bytes(plan.expert_cache_bytes), format_bytes(plan.experts_bytes), refusal.message()));
}

Status check_near_cache(Device& device, bool has_memory) {
  if (has_memory && device.part(0).copies_beside()) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "a near cache: device {} has no memory of its own for one", device.name());
}

bool needs_helper(PlanMode plan) { return plan == PlanMode::kHelper || plan == PlanMode::kShared; }

Error no_helper(PlanMode plan, const Device& device) {
  return make_error(
      ErrorCode::kUnsupported,
      "plan {}: no CPU kernel computes experts of these formats with the bits of device {}",
      plan_name(plan), device.name());
}

HelpMode help_mode(PlanMode plan) {
  switch (plan) {
    case PlanMode::kAuto:
      return HelpMode::kFastest;
    case PlanMode::kHelper:
      return HelpMode::kAlways;
    case PlanMode::kShared:
      return HelpMode::kShared;
    case PlanMode::kResident:
    case PlanMode::kNear:
      return HelpMode::kNever;
  }
  __builtin_unreachable();
}

}  // namespace

// None of a device that works in the host's memory.
std::vector<DeviceMemory> Engine::device_memory() const {
  std::vector<DeviceMemory> memory;
  if (!device_->free_bytes()) return memory;
  const int64_t tokens = std::min(planned_tokens_, kSequenceTokens);
  for (size_t i = 0; i < device_plan_.parts.size(); ++i) {
    const PartPlan& part = device_plan_.parts[i];
    const ExpertTable& experts = part_experts(i);
    DeviceMemory& own = memory.emplace_back(DeviceMemory{
        .free_bytes = device_->part(i).free_bytes().value_or(0),
        .taken_bytes = part.state_bytes + device_plan_.listed_bytes + part.reserve_bytes,
        .copies_beside = device_->part(i).copies_beside(),
        .experts = &experts});
    const uint64_t left = own.free_bytes > own.taken_bytes ? own.free_bytes - own.taken_bytes : 0;
    if (left >= resident_experts_bytes(experts)) continue;
    // Where the device holds some experts, fewer of them make room for the states of all sequences.
    const uint64_t others = static_cast<uint64_t>(options_.step_sequences - 1) *
                            state_bytes(tokens) / device_plan_.parts.size();
    own.taken_bytes += std::min(others, left / kContextShare);
  }
  return memory;
}

const ExpertTable& Engine::part_experts(size_t part) const {
  return part_experts_.empty() ? loaded_->experts : part_experts_[part];
}

// Its device holds all of its experts, and the host need not.
bool Engine::is_resident(size_t part) const { return far_.size() > part && far_[part] == nullptr; }

Status Engine::check_resident(uint64_t bytes_for_experts) const {
  if (options_.plan != PlanMode::kResident || home_ == ExpertHome::kDevice) return {};
  return make_error(ErrorCode::kResourceExhausted,
                    "plan resident: experts take {}, device {} has {} for them",
                    format_bytes(resident_experts_bytes(loaded_->experts)), device_->name(),
                    format_bytes(bytes_for_experts));
}

// As many of each layer as the layers of each device have of all.
void Engine::share_experts() {
  expert_shares_ = expert_shares(part_experts_);
  part_experts_ = tables_by_share(loaded_->experts, expert_shares_);
}

Status Engine::open_experts() {
  if (const size_t parts = device_->num_parts(); parts > 1) {
    part_experts_ = tables_by_part(loaded_->experts, part_of_layer_, parts);
    if (options_.split == SplitMode::kExperts) share_experts();
  }
  const std::vector<DeviceMemory> memory = device_memory();
  if (options_.near_cache_bytes) {
    MF_RETURN_IF_ERROR(check_near_cache(*device_, !memory.empty()));
  }
  const uint64_t token_bytes =
      static_cast<uint64_t>(token_demand(spec()).per_layer) * loaded_->experts.slot_bytes_max();
  ExpertPlan split = plan_experts(loaded_->experts, plan_, memory,
                                  {.expert_cache_bytes = options_.expert_cache_bytes,
                                   .near_cache_bytes = options_.near_cache_bytes,
                                   .ring_bytes = options_.ring_bytes,
                                   .token_bytes = token_bytes});
  home_ = split.home;
  near_bytes_ = split.near_bytes;
  if (!expert_shares_.empty() && home_ != ExpertHome::kDevice) {
    return make_error(ErrorCode::kResourceExhausted,
                      "split experts: experts take {}, device {} has {} for them (see --split)",
                      format_bytes(resident_experts_bytes(loaded_->experts)), device_->name(),
                      format_bytes(near_bytes_));
  }
  MF_RETURN_IF_ERROR(check_resident(near_bytes_));
  if (home_ != ExpertHome::kHostAndDevice) far_.clear();
  if (home_ == ExpertHome::kDevice) return open_resident();
  TierOptions tier{.near_bytes = split.near_bytes,
                   .placement = options_.placement,
                   .profile = &profile_,
                   .on_less = options_.on_warning};
  std::vector<PartTier> parts;
  for (size_t i = 0; i < split.parts.size(); ++i) {
    parts.push_back({split.parts[i].near_bytes, memory[i].taken_bytes});
  }
  if (!parts.empty()) {
    tier.leave_bytes = parts.front().leave_bytes;
    MF_ASSIGN_OR_RETURN(tier.helper, open_helper());
  }
  if (home_ == ExpertHome::kHostAndDevice) {
    const Status room = take_far_memory(split);
    if (!far_.empty()) {
      MF_RETURN_IF_ERROR(room);
      return open_tiered(split, tier, parts);
    }
    home_ = ExpertHome::kDrive;
    split.far_bytes = half_of_experts(plan_);
    MF_RETURN_IF_ERROR(open_streamed(split, tier, std::move(parts)));
    plan_.expert_cache_bytes = experts_->capacity_bytes();
    warn_of_drive(options_, plan_, room.error());
    return {};
  }
  return open_streamed(split, tier, std::move(parts));
}

// Where there is no far memory afterwards, the system refused so much of it. A part that has some
// keeps it.
Status Engine::take_far_memory(const ExpertPlan& split) {
  std::vector<std::unique_ptr<Buffer>> far = std::exchange(far_, {});
  far.resize(split.parts.size());
  std::vector<size_t> unread;
  for (size_t i = 0; i < far.size(); ++i) {
    const ExpertTable& experts = part_experts(i);
    if (far[i] != nullptr || split.parts[i].holds_all || experts.num_experts_total() == 0) continue;
    MF_ASSIGN_OR_RETURN(far[i], allocate_far_experts(experts, device_->part(i)));
    unread.push_back(i);
  }
  far_ = std::move(far);
  for (const size_t i : unread) {
    const ExpertTable& experts = part_experts(i);
    far_bytes_read_ += experts.bytes_total();
    MF_RETURN_IF_ERROR(
        load_far_experts(experts, loaded_->index, *reader_, *far_[i], options_.check_experts));
  }
  return {};
}

Status Engine::open_resident() {
  MF_ASSIGN_OR_RETURN(experts_,
                      make_resident_expert_store(
                          loaded_->experts, loaded_->index, *reader_, *device_,
                          {.check_arrivals = options_.check_experts, .shares = expert_shares_}));
  plan_.expert_cache_bytes = experts_->capacity_bytes();
  return {};
}

Result<std::unique_ptr<ExpertStore>> Engine::open_tiered_part(size_t part, const TierOptions& tier,
                                                              uint64_t ring_bytes) {
  const ExpertTable& experts = part_experts(part);
  if (is_resident(part)) {
    return make_resident_expert_store(experts, loaded_->index, *reader_, device_->part(part),
                                      {.check_arrivals = options_.check_experts});
  }
  return make_tiered_expert_store(experts, device_->part(part), *far_[part],
                                  {.tier = tier,
                                   .ring_bytes = ring_bytes,
                                   .step_tokens_max = prefill_chunk_,
                                   .experts_per_token_max = token_demand(spec()).per_layer,
                                   .bytes_read = std::exchange(far_bytes_read_, 0)});
}

Status Engine::open_tiered(const ExpertPlan& split, const TierOptions& tier,
                           std::span<const PartTier> parts) {
  const auto open = [&](size_t part) {
    TierOptions own = tier;
    own.near_bytes = parts[part].near_bytes;
    own.leave_bytes = parts[part].leave_bytes;
    return open_tiered_part(part, own, split.parts[part].ring_bytes);
  };
  if (part_experts_.empty()) {
    MF_ASSIGN_OR_RETURN(experts_, open(0));
  } else {
    MF_ASSIGN_OR_RETURN(experts_, make_split_expert_store(loaded_->experts, part_experts_, *device_,
                                                          make_tiered_help(tier.helper), open));
  }
  plan_.expert_cache_bytes = experts_->capacity_bytes();
  return {};
}

Status Engine::open_streamed(const ExpertPlan& split, const TierOptions& tier,
                             std::vector<PartTier> parts) {
  MF_ASSIGN_OR_RETURN(
      experts_, make_streamed_expert_store(loaded_->experts, loaded_->index, *reader_, *device_,
                                           {.capacity_bytes = split.far_bytes,
                                            .eviction = options_.eviction,
                                            .demand = token_demand(spec()),
                                            .staging = {},
                                            .check_arrivals = options_.check_experts,
                                            .tier = tier,
                                            .parts = std::move(parts),
                                            .lookahead = options_.lookahead}));
  return {};
}

Status Engine::force_routes() {
  if (options_.forced_routes == nullptr) return {};
  MF_ASSIGN_OR_RETURN(RouteReplacement forced,
                      moeflux::force_routes(*options_.forced_routes, loaded_->experts,
                                            {.with_weights = options_.forced_weights}));
  experts_->routes().replace_by(std::move(forced));
  return {};
}

Result<HelperOptions> Engine::open_helper() {
  if (options_.plan == PlanMode::kNear || loaded_->experts.num_experts_total() == 0) {
    return HelperOptions{};
  }
  if (options_.helper == nullptr || !same_bits(*device_, *options_.helper, loaded_->experts)) {
    if (needs_helper(options_.plan)) return no_helper(options_.plan, *device_);
    return HelperOptions{};
  }
  ExpertHelperShape shape{.experts_per_token_max = token_demand(spec()).per_layer,
                          .hidden = spec().hidden_size};
  for (const LayerSpec& layer : spec().layers) {
    shape.intermediate_max = std::max(shape.intermediate_max, layer.moe.moe_intermediate_size);
    if (layer.moe.latent_size > 0) shape.hidden = layer.moe.latent_size;  // of all layers
  }
  shape.rows_max =
      std::min(prefill_chunk_, helped_rows_max(loaded_->experts, shape.experts_per_token_max));
  MF_ASSIGN_OR_RETURN(helper_, ExpertHelper::create(*device_, *options_.helper, shape));
  return HelperOptions{.helper = helper_.get(), .mode = help_mode(options_.plan)};
}

// Networks of a model without experts that its device had no room for.
Status Engine::open_networks() {
  std::span<const FarNetwork> far = loaded_->far_networks;
  // Drafts read theirs where it lies: it is no part of the order in which a step takes them.
  if (spec().draft_layers > 0 && !far.empty() && far.back().layer == draft_layer()) {
    far = far.first(far.size() - 1);
  }
  if (far.empty() || loaded_->experts.num_experts_total() > 0 || layers_ != nullptr) return {};
  Device* helper = options_.helper;
  if (helper != nullptr && !same_bits(*device_, *helper, far)) helper = nullptr;
  if (helper == nullptr && needs_helper(options_.plan)) return no_helper(options_.plan, *device_);
  MF_ASSIGN_OR_RETURN(networks_, FarNetworks::create(far, *device_,
                                                     {.helper = helper,
                                                      .mode = help_mode(options_.plan),
                                                      .rows_max = prefill_chunk_,
                                                      .copies = device_plan_.networks_bytes > 0}));
  return {};
}

// Sequences share what is left now, which is what was planned for one at least: small things of the
// experts' store came out of the reserve. Keys are gathered when a text needs it: of their room,
// nothing is taken yet. A quarter of the reserve is for a checkpoint's copy of what every step
// reads.
void Engine::bound_states() {
  if (!device_->free_bytes()) return;
  std::vector<StateMemory::Bounds> bounds;
  for (size_t i = 0; i < device_plan_.parts.size(); ++i) {
    const PartPlan& part = device_plan_.parts[i];
    const uint64_t left = device_->part(i).free_bytes().value_or(0);
    const uint64_t others = part.reserve_bytes + device_plan_.listed_bytes;
    const uint64_t beyond = left > others ? left - others : 0;
    const uint64_t copies = part.state_kept_bytes > 0 ? part.reserve_bytes / 4 : 0;
    bounds.push_back({.near_bytes = std::max(beyond, part.state_bytes) + copies,
                      .kept_bytes = part.state_kept_bytes + copies});
  }
  state_memory_->bound(std::move(bounds));
}

uint64_t Engine::host_bytes() const {
  uint64_t experts = 0;
  if (!far_.empty()) {
    for (const std::unique_ptr<Buffer>& far : far_)
      experts += far != nullptr ? far->size_bytes() : 0;
  } else if (home_ == ExpertHome::kDrive || !device_->free_bytes()) {
    experts = experts_->capacity_bytes();
  }
  const uint64_t grows = plan_.on_device.state_bytes > 0 || plan_.context_bytes < plan_.state_bytes
                             ? 0
                             : plan_.context_bytes - plan_.state_bytes;
  // States of further sequences may take half of the reserve, too; the rest is the system's.
  return plan_.taken_bytes() - plan_.reserve_bytes / 2 + grows + experts;
}

uint64_t Engine::state_room_bytes() const {
  return std::max(plan_.context_bytes + plan_.sequences_bytes + plan_.reserve_bytes / 2,
                  state_memory_->near_bytes_max());
}

int64_t usual_sequences(const Engine& engine) {
  const bool is_resident = engine.state_memory_->is_bounded() &&
                           engine.home_ == ExpertHome::kDevice && engine.networks_ == nullptr &&
                           engine.layers_ == nullptr;
  return usual_sequences(
      {.is_resident = is_resident,
       .state_bytes = engine.state_memory_->near_bytes_max(),
       .sequence_bytes = engine.state_bytes(std::min(engine.planned_tokens_, kSequenceTokens)),
       .rows_max = engine.logits_rows()});
}

Status Engine::set_plan(PlanMode plan) {
  const PlanMode before = std::exchange(options_.plan, plan);
  Status possible = check_resident(near_bytes_);
  const bool could_have = home_ != ExpertHome::kDevice && state_memory_->is_bounded();
  const bool has_helper = networks_ != nullptr ? networks_->has_helper() : helper_ != nullptr;
  if (needs_helper(plan) && could_have && !has_helper) possible = no_helper(plan, *device_);
  if (!possible.ok()) {
    options_.plan = before;
    return possible;
  }
  experts_->help().set_mode(help_mode(plan));
  if (networks_ != nullptr) networks_->set_mode(help_mode(plan));
  return {};
}

ExpertMap Engine::expert_map() const {
  const ExpertTable& table = loaded_->experts;
  const ExpertShape shape = shape_of(table);
  ExpertMap map{.num_layers = shape.num_layers, .num_experts = shape.num_experts};
  map.places.resize(shape.size(), ExpertPlace::kDrive);
  ExpertPlace home = ExpertPlace::kHost;
  if (home_ == ExpertHome::kDrive) home = ExpertPlace::kDrive;
  if (home_ == ExpertHome::kDevice && device_->free_bytes()) home = ExpertPlace::kDevice;
  for (size_t l = 0; l < table.layers.size(); ++l) {
    const auto first = map.places.begin() + static_cast<std::ptrdiff_t>(l) * map.num_experts;
    const size_t part = device_->part_of(LayerId{static_cast<int32_t>(l)});
    std::fill_n(first, table.layers[l].num_experts,
                is_resident(part) ? ExpertPlace::kDevice : home);
  }
  experts_->describe(map);
  return map;
}

ExpertStats Engine::expert_stats() const {
  ExpertStats stats = experts_->stats();
  if (layers_ != nullptr) {
    const LayerStream::Stats read = layers_->stats();
    stats.bytes_read += read.bytes_read;
    stats.stall_us += read.stall_us;
    stats.read_us += read.read_us;
  }
  if (networks_ != nullptr) {
    stats.helped_steps += networks_->helped_steps();
    stats.bus_bytes += networks_->bytes_copied();
  }
  if (ngram_rows_ == nullptr) return stats;
  stats.table_bytes_read = ngram_rows_->bytes_read();
  stats.table_stall_us = ngram_rows_->stall_us();
  return stats;
}

Result<std::unique_ptr<Engine>> Engine::replan(std::unique_ptr<Engine> engine,
                                               const PlanRequest& request) {
  Engine& e = *engine;
  MF_RETURN_IF_ERROR(e.encoder_->wait(e.encoder_->submit()));
  // Tables and leases that it keeps are those of the experts' places before.
  e.encoder_.reset();
  e.experts_.reset();
  e.helper_.reset();
  e.options_.near_cache_bytes = request.near_cache_bytes;
  e.options_.plan = request.plan;
  if (e.networks_ != nullptr) e.networks_->set_mode(help_mode(request.plan));
  e.plan_ = plan_memory(*e.loaded_, e.memory_request_);
  MF_ASSIGN_OR_RETURN(e.encoder_, e.device_->create_encoder(e.scratch_bytes_));
  MF_RETURN_IF_ERROR(e.open_experts());
  MF_RETURN_IF_ERROR(e.force_routes());
  e.bound_states();
  return engine;
}

}  // namespace moeflux
