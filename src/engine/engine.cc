#include "engine/engine.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/format.h"
#include "base/units.h"
#include "checkpoint/checksum.h"
#include "engine/cache_types.h"
#include "engine/dry_run.h"
#include "engine/expert_plan.h"
#include "engine/model_fingerprint.h"
#include "experts/forced_routes.h"
#include "experts/near_slots.h"
#include "experts/resident_expert_store.h"
#include "experts/streamed_expert_store.h"
#include "experts/tiered_expert_store.h"
#include "io/file.h"
#include "io/page_cache.h"

namespace moeflux {
namespace {

constexpr int64_t kPlannedTokensMax = 4096;
// How many of kReaderDepth reads may be guesses: a demand read behind so few is late by a
// millisecond or two.
constexpr int kSpeculativeDepth = 8;

Result<Tensor> allocate_tensor(Device& device, std::vector<std::unique_ptr<Buffer>>& buffers,
                               const Shape& shape, DType dtype) {
  const auto bytes = static_cast<size_t>(shape.num_elements() * dtype_bits(dtype) / 8);
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, device.allocate(bytes, MemoryKind::kDevice));
  buffers.push_back(std::move(buffer));
  return Tensor::view(*buffers.back(), 0, shape, dtype);
}

TokenDemand token_demand(const ModelSpec& spec) {
  TokenDemand demand;
  for (const LayerSpec& layer : spec.layers) {
    if (layer.moe.num_experts == 0) continue;
    demand.per_token += layer.moe.experts_per_token;
    demand.per_layer = std::max(demand.per_layer, layer.moe.experts_per_token);
  }
  return demand;
}

// Dense weights have been read through the page cache, where they would stay as a second copy, some
// of it on the active list, in memory that the expert cache is about to take. What fits in memory
// whole keeps its copy: the next start is faster for it.
void drop_cached_files(const TensorIndex& index) {
  for (int32_t i = 0; i < index.num_files(); ++i) {
    const File& file = index.file(i);
    const int buffered = file.descriptors().buffered;
    if (buffered >= 0) drop_from_page_cache(buffered, 0, file.size_bytes());
  }
}

// True when both devices compute every expert of the table with the same bits.
bool same_bits(const Device& device, const Device& helper, const ExpertTable& experts) {
  if (&device == &helper) return true;
  return std::ranges::all_of(experts.layers, [&](const ExpertLayer& layer) {
    if (layer.num_experts == 0) return true;
    const std::array matrices = {&layer.gate, &layer.up, &layer.down};
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
      "{} of {} of experts are kept in the host's memory, the others come from the drive: {}",
      format_bytes(plan.expert_cache_bytes), format_bytes(plan.experts_bytes), refusal.message()));
}

Status check_near_cache(const Device& device, bool has_memory) {
  if (has_memory && device.copies_beside()) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "a near cache: device {} has no memory of its own for one", device.name());
}

}  // namespace

Result<int64_t> planned_tokens_for(const ModelSpec& spec, const EngineOptions& options) {
  if (options.context_length < 0 || options.context_length > spec.max_position_embeddings) {
    return make_error(ErrorCode::kInvalidArgument,
                      "context length {} is outside 1 to {}, the model's maximum",
                      options.context_length, spec.max_position_embeddings);
  }
  return options.context_length > 0 ? options.context_length
                                    : std::min(spec.max_position_embeddings, kPlannedTokensMax);
}

int64_t prefill_chunk_for(const Device& device, const EngineOptions& options, int64_t context) {
  const int64_t wanted =
      options.prefill_chunk > 0 ? options.prefill_chunk : device.preferred_prefill_chunk();
  return std::clamp<int64_t>(wanted, 1, context);
}

Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::open(const std::string& model_directory, Device& device,
                                             const EngineOptions& options) {
  const uint64_t available = options.read_memory().available_bytes;
  std::unique_ptr<Engine> engine(new Engine);
  engine->device_ = &device;
  engine->state_memory_ = std::make_shared<StateMemory>(device);
  const std::optional<uint64_t> device_free = device.free_bytes();
  engine->device_has_memory_ = device_free.has_value();
  DensePlanner place;
  if (device_free) {
    place = [&](LoadedModel& counted) {
      return engine->place_dense(counted, options, *device_free);
    };
  }
  MF_ASSIGN_OR_RETURN(engine->loaded_, load_model(model_directory, device, WeightLoading::kRead,
                                                  options.load_progress, place));
  MF_ASSIGN_OR_RETURN(engine->loaded_->cache_types,
                      cache_types_for(device, engine->spec(), options));
  const ModelSpec& spec = engine->spec();
  if (device_free) {
    const DenseSizes& dense = engine->loaded_->dense;
    engine->device_plan_.share.dense_bytes = dense.bytes - dense.host_bytes;
  } else {
    MF_RETURN_IF_ERROR(engine->choose_steps(spec, options));
  }

  const int64_t n = engine->prefill_chunk_;
  MF_ASSIGN_OR_RETURN(engine->step_inputs_,
                      allocate_tensor(device, engine->step_buffers_, {2 * n}, DType::kI32));
  MF_ASSIGN_OR_RETURN(
      engine->best_, allocate_tensor(device, engine->step_buffers_, {2, kTopRowsMax}, DType::kF32));
  MF_ASSIGN_OR_RETURN(engine->logits_,
                      allocate_tensor(device, engine->step_buffers_,
                                      {logits_rows_max(spec, n), spec.vocab_size}, DType::kF32));
  MF_ASSIGN_OR_RETURN(const DryRun needs,
                      dry_run(*engine->loaded_->model, n, engine->logits_.dim(0)));
  MF_ASSIGN_OR_RETURN(engine->encoder_, device.create_encoder(needs.scratch_bytes));

  const MemoryPlanRequest request = {
      .available_bytes = available,
      .context_length = engine->planned_tokens_,
      .context_may_grow = options.context_length == 0,
      .step_tokens_max = n,
      .scratch_bytes = needs.scratch_bytes + engine->logits_.size_bytes(),
      .expert_cache_bytes = options.expert_cache_bytes,
      .on_device = engine->device_plan_.share};
  engine->plan_ = plan_memory(*engine->loaded_, request);
  const bool streams = engine->plan_.streams();
  if (streams && compute_as_stored(engine->loaded_->experts, device)) {
    engine->plan_ = plan_memory(*engine->loaded_, request);
  }
  // When half of the reserve is gone, all of it is made good.
  engine->pressure_ =
      MemoryPressure(options.read_memory, {.low_bytes = engine->plan_.reserve_bytes / 2,
                                           .high_bytes = engine->plan_.reserve_bytes,
                                           .interval = options.memory_interval});
  if (streams) drop_cached_files(engine->loaded_->index);
  engine->profile_path_ = options.expert_profile;
  MF_RETURN_IF_ERROR(engine->load_expert_profile());
  MF_RETURN_IF_ERROR(engine->open_experts(options));
  MF_RETURN_IF_ERROR(engine->force_routes(options));
  engine->bound_states();
  MF_RETURN_IF_ERROR(engine->open_prefixes(options));
  return engine;
}

Status Engine::choose_steps(const ModelSpec& spec, const EngineOptions& options) {
  MF_ASSIGN_OR_RETURN(planned_tokens_, planned_tokens_for(spec, options));
  prefill_chunk_ = prefill_chunk_for(*device_, options, planned_tokens_);
  return {};
}

Result<DensePlaces> Engine::place_dense(LoadedModel& counted, const EngineOptions& options,
                                        uint64_t device_free) {
  MF_RETURN_IF_ERROR(choose_steps(counted.spec(), options));
  MF_ASSIGN_OR_RETURN(counted.cache_types, cache_types_for(*device_, counted.spec(), options));
  Result<DevicePlan> plan = plan_device(counted, {.free_bytes = device_free,
                                                  .context_length = planned_tokens_,
                                                  .step_tokens = prefill_chunk_,
                                                  .step_may_shrink = options.prefill_chunk == 0,
                                                  .near_cache_bytes = options.near_cache_bytes});
  if (!plan.ok()) return plan.error().with_context(formatted("device {}", device_->name()));
  device_plan_ = *std::move(plan);
  prefill_chunk_ = device_plan_.step_tokens;
  return device_plan_.dense;
}

// None of a device that works in the host's memory.
std::optional<DeviceMemory> Engine::device_memory() const {
  const std::optional<uint64_t> free = device_->free_bytes();
  if (!free) return std::nullopt;
  return DeviceMemory{.free_bytes = *free,
                      .taken_bytes = device_plan_.share.state_bytes + device_plan_.reserve_bytes,
                      .copies_beside = device_->copies_beside()};
}

Status Engine::check_resident(const EngineOptions& options, const ExpertPlan& split) const {
  if (options.plan != PlanMode::kResident || split.home == ExpertHome::kDevice) return {};
  return make_error(ErrorCode::kResourceExhausted,
                    "plan resident: experts take {}, device {} has {} for them",
                    format_bytes(resident_experts_bytes(loaded_->experts)), device_->name(),
                    format_bytes(split.near_bytes));
}

Status Engine::open_experts(const EngineOptions& options) {
  MF_ASSIGN_OR_RETURN(
      reader_, make_reader(options.expert_io, {.threads = std::max(1, options.reader_threads),
                                               .depth = kReaderDepth,
                                               .speculative_depth = kSpeculativeDepth}));
  const std::optional<DeviceMemory> memory = device_memory();
  if (options.near_cache_bytes) {
    MF_RETURN_IF_ERROR(check_near_cache(*device_, memory.has_value()));
  }
  const uint64_t token_bytes =
      static_cast<uint64_t>(token_demand(spec()).per_layer) * loaded_->experts.slot_bytes_max();
  ExpertPlan split = plan_experts(loaded_->experts, plan_, memory,
                                  {.expert_cache_bytes = options.expert_cache_bytes,
                                   .near_cache_bytes = options.near_cache_bytes,
                                   .ring_bytes = options.ring_bytes,
                                   .token_bytes = token_bytes});
  MF_RETURN_IF_ERROR(check_resident(options, split));
  // Far memory may be refused where there is enough of it.
  Result<std::unique_ptr<Buffer>> far(nullptr);
  const bool wants_far = split.home == ExpertHome::kHostAndDevice;
  if (wants_far) far = allocate_far_experts(loaded_->experts, *device_);
  HelperOptions helper;
  if (memory && memory->copies_beside && split.home != ExpertHome::kDevice) {
    MF_ASSIGN_OR_RETURN(helper, open_helper(options));
  }
  if (split.home == ExpertHome::kDevice) {
    MF_ASSIGN_OR_RETURN(
        experts_, make_resident_expert_store(loaded_->experts, loaded_->index, *reader_, *device_,
                                             {.check_arrivals = options.check_experts}));
    plan_.expert_cache_bytes = experts_->capacity_bytes();
  } else if (wants_far && far.ok()) {
    MF_ASSIGN_OR_RETURN(
        experts_, make_tiered_expert_store(loaded_->experts, loaded_->index, *reader_, *device_,
                                           std::move(far).value(),
                                           {.near_bytes = split.near_bytes,
                                            .ring_bytes = split.ring_bytes,
                                            .step_tokens_max = prefill_chunk_,
                                            .experts_per_token_max = token_demand(spec()).per_layer,
                                            .placement = options.placement,
                                            .helper = helper,
                                            .profile = &profile_,
                                            .leave_bytes = memory ? memory->taken_bytes : 0,
                                            .on_less = options.on_warning,
                                            .check_arrivals = options.check_experts}));
    plan_.expert_cache_bytes = experts_->capacity_bytes();
  } else {
    if (!far.ok()) split.far_bytes = half_of_experts(plan_);
    MF_ASSIGN_OR_RETURN(
        experts_, make_streamed_expert_store(loaded_->experts, loaded_->index, *reader_, *device_,
                                             {.capacity_bytes = split.far_bytes,
                                              .eviction = options.eviction,
                                              .demand = token_demand(spec()),
                                              .staging = {},
                                              .check_arrivals = options.check_experts,
                                              .near_bytes = split.near_bytes,
                                              .placement = options.placement,
                                              .helper = helper,
                                              .profile = &profile_,
                                              .leave_bytes = memory ? memory->taken_bytes : 0,
                                              .on_less = options.on_warning,
                                              .lookahead = options.lookahead}));
    if (!far.ok()) {
      plan_.expert_cache_bytes = experts_->capacity_bytes();
      warn_of_drive(options, plan_, far.error());
    }
  }
  return {};
}

Status Engine::force_routes(const EngineOptions& options) {
  if (options.forced_routes == nullptr) return {};
  MF_ASSIGN_OR_RETURN(experts_, make_forced_routes_store(std::move(experts_),
                                                         *options.forced_routes, loaded_->experts,
                                                         {.with_weights = options.forced_weights}));
  return {};
}

Result<HelperOptions> Engine::open_helper(const EngineOptions& options) {
  if (options.plan == PlanMode::kNear || loaded_->experts.num_experts_total() == 0) {
    return HelperOptions{};
  }
  const bool is_wanted = options.plan == PlanMode::kHelper;
  if (options.helper == nullptr || !same_bits(*device_, *options.helper, loaded_->experts)) {
    if (!is_wanted) return HelperOptions{};
    return make_error(ErrorCode::kUnsupported,
                      "plan helper: nobody gives experts of these formats the bits of device {}",
                      device_->name());
  }
  ExpertHelperShape shape{.experts_per_token_max = token_demand(spec()).per_layer,
                          .hidden = spec().hidden_size};
  for (const LayerSpec& layer : spec().layers) {
    shape.intermediate_max = std::max(shape.intermediate_max, layer.moe.moe_intermediate_size);
  }
  shape.rows_max =
      std::min(prefill_chunk_, helped_rows_max(loaded_->experts, shape.experts_per_token_max));
  MF_ASSIGN_OR_RETURN(helper_, ExpertHelper::create(*device_, *options.helper, shape));
  return HelperOptions{.helper = helper_.get(), .always = is_wanted};
}

// Sequences share what is left now, which is what was planned for one at least: small things of the
// experts' store came out of the reserve.
void Engine::bound_states() {
  const std::optional<uint64_t> left = device_->free_bytes();
  if (!left) return;
  const uint64_t reserve = device_plan_.reserve_bytes;
  const uint64_t beyond = *left > reserve ? *left - reserve : 0;
  state_memory_->bound({.near_bytes = std::max(beyond, device_plan_.share.state_bytes),
                        .kept_bytes = device_plan_.state_kept_bytes});
}

Status Engine::open_prefixes(const EngineOptions& options) {
  MF_ASSIGN_OR_RETURN(fingerprint_, model_fingerprint(*loaded_));
  if (options.prefix_cache_bytes > 0) {
    // Other devices compute other last bits: what they keep is not for this one.
    const CacheTypes& types = loaded_->cache_types;
    const std::string owner = formatted("{:016x} {} {} {}", fingerprint_, device_->bits_key(),
                                        dtype_name(types.keys), dtype_name(types.values));
    MF_ASSIGN_OR_RETURN(
        prefixes_,
        PrefixCache::open({.capacity_bytes = options.prefix_cache_bytes,
                           .directory = options.prefix_cache_directory,
                           .owner = checksum64(owner),
                           .tokens_max = context_length(),
                           .shortest_truncation = [layers = loaded_->states()](int64_t length) {
                             return SequenceState::shortest_truncation(layers, length);
                           }}));
  }
  return {};
}

Status Engine::load_expert_profile() {
  profile_.model = spec().model_type;
  if (profile_path_.empty() || !path_exists(profile_path_)) return {};
  MF_ASSIGN_OR_RETURN(UsageProfile found, UsageProfile::read(profile_path_));
  if (found.model != profile_.model) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: a usage profile of {}, the model is {} (see --expert-profile)",
                      profile_path_, found.model, profile_.model);
  }
  const Status checked = found.check(shape_of(loaded_->experts));
  if (!checked.ok()) return checked.error().with_context(profile_path_);
  profile_ = std::move(found);
  return {};
}

Status Engine::save_expert_profile() const {
  UsageProfile profile = profile_;
  if (profile_path_.empty() || !experts_->add_uses(profile)) return {};
  return profile.write(profile_path_);
}

Result<std::unique_ptr<Sequence>> Engine::create_sequence() {
  MF_ASSIGN_OR_RETURN(std::unique_ptr<SequenceState> state,
                      SequenceState::create(state_memory_, loaded_->states(), prefill_chunk_));
  return std::unique_ptr<Sequence>(new Sequence({std::move(state), {}}));
}

}  // namespace moeflux
