#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "engine/cache_types.h"
#include "experts/stores/split_expert_store.h"
#include "experts/tiers/near_slots.h"
#include "io/file.h"
#include "io/page_cache.h"
#include "load/model_fingerprint.h"
#include "plan/dense_fit.h"
#include "plan/dense_stream.h"
#include "plan/dry_run.h"
#include "plan/layer_split.h"
#include "plan/long_steps.h"
#include "plan/machine_probe.h"

namespace moeflux {
namespace {

constexpr int64_t kPlannedTokensMax = 4096;
// How many of kReaderDepth reads may be guesses: a demand read behind so few is late by a
// millisecond or two.
constexpr int kSpeculativeDepth = 8;
constexpr double kProbeSeconds = 0.5;

Result<Tensor> allocate_tensor(Device& device, std::vector<std::unique_ptr<Buffer>>& buffers,
                               const Shape& shape, DType dtype) {
  const auto bytes = static_cast<size_t>(shape.num_elements() * dtype_bits(dtype) / 8);
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, device.allocate(bytes, MemoryKind::kDevice));
  buffers.push_back(std::move(buffer));
  return Tensor::view(*buffers.back(), 0, shape, dtype);
}

// Dense weights have been read through the page cache, where they would stay as a second copy, some
// of it on the active list, in memory that the expert cache is about to take. A file that fits in
// memory whole keeps its copy: the next start is faster for it.
void drop_cached_files(const TensorIndex& index) {
  for (int32_t i = 0; i < index.num_files(); ++i) {
    const File& file = index.file(i);
    const int buffered = file.descriptors().buffered;
    if (buffered >= 0) drop_from_page_cache(buffered, 0, file.size_bytes());
  }
}

// Several devices, or one, as the options want.
Status check_parts(const std::string& model_directory, const Device& device,
                   const EngineOptions& options) {
  if (options.draft_layer && device.num_parts() > 1 && options.split != SplitMode::kLayers) {
    return make_error(ErrorCode::kUnsupported,
                      "the MTP layer of {} drafts on devices that have layers, expected --split "
                      "layers or no --draft-mtp",
                      model_directory);
  }
  if (options.split != SplitMode::kLayers && device.num_parts() == 1) {
    return make_error(ErrorCode::kInvalidArgument,
                      "split {}: device {} is one, expected several (see --device)",
                      split_name(options.split), device.name());
  }
  return {};
}

Status reach_each_other(Device& device, SplitMode split) {
  for (size_t i = 0; i < device.num_parts(); ++i) {
    for (size_t j = 0; j < device.num_parts(); ++j) {
      if (i == j) continue;
      const Status reached = device.part(i).reach(device.part(j));
      if (!reached.ok()) {
        return reached.error().with_context(formatted("split {}", split_name(split)));
      }
    }
  }
  return {};
}

// Latent attention has one row of keys for all heads, and recurrent layers have none.
Status check_heads(const LoadedModel& counted) {
  for (const LayerStateSpec& layer : counted.states()) {
    for (const StateTensor& tensor : layer.tensors) {
      if (tensor.num_own_heads() > 1) return {};
    }
  }
  return make_error(ErrorCode::kUnsupported,
                    "split attention: no layer of {} keeps all keys of several heads, expected "
                    "layers or experts (see --split)",
                    counted.spec().model_type);
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

int64_t step_tokens_max(const ModelSpec& spec, const EngineOptions& options) {
  const int64_t context =
      options.context_length > 0 ? options.context_length : spec.max_position_embeddings;
  return context * options.step_sequences;
}

int64_t prefill_chunk_for(const Device& device, const EngineOptions& options, int64_t context) {
  const int64_t wanted =
      options.prefill_chunk > 0 ? options.prefill_chunk : device.preferred_prefill_chunk();
  return std::clamp<int64_t>(wanted, 1, context * options.step_sequences);
}

Engine::~Engine() = default;

Status Engine::take_step_buffers() {
  const int64_t n = prefill_chunk_;
  const auto take = [&](Tensor& tensor, const Shape& shape, DType dtype) -> Status {
    MF_ASSIGN_OR_RETURN(tensor, allocate_tensor(*device_, step_buffers_, shape, dtype));
    return {};
  };
  const bool drafts = spec().draft_layers > 0;
  MF_RETURN_IF_ERROR(take(step_inputs_, {(drafts ? 4 : 2) * n}, DType::kI32));
  const int64_t rows = best_rows_max(spec(), n);
  if (drafts) {
    const Shape shape{rows, spec().draft_width()};
    const auto bytes = static_cast<size_t>(shape.num_elements()) * sizeof(float);
    MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer,
                        device_->allocate_for(draft_layer(), bytes, MemoryKind::kDevice));
    step_buffers_.push_back(std::move(buffer));
    draft_hidden_ = Tensor::view(*step_buffers_.back(), 0, shape, DType::kF32);
  }
  MF_RETURN_IF_ERROR(take(best_, {2, rows, kTopRowsMax}, DType::kF32));
  const int64_t masks = mask_rows_max(spec(), n);
  MF_RETURN_IF_ERROR(take(masks_, {masks, mask_words(spec().vocab_size)}, DType::kI32));
  return take(logits_, {logits_rows_max(spec(), n), spec().vocab_size}, DType::kF32);
}

Result<std::unique_ptr<Engine>> Engine::open(const std::string& model_directory, Device& device,
                                             const EngineOptions& options) {
  const uint64_t available = options.read_memory().available_bytes;
  MF_RETURN_IF_ERROR(check_parts(model_directory, device, options));
  std::unique_ptr<Engine> engine(new Engine);
  engine->device_ = &device;
  engine->state_memory_ = std::make_shared<StateMemory>(device);
  const auto place = [&](LoadedModel& counted) {
    return engine->place_dense(counted, options, available);
  };
  MF_ASSIGN_OR_RETURN(engine->loaded_, load_model(model_directory, device, WeightLoading::kRead,
                                                  options.load_progress, place,
                                                  {options.context_length, options.draft_layer}));
  MF_ASSIGN_OR_RETURN(engine->loaded_->cache_types,
                      cache_types_for(device, engine->spec(), options));
  if (device.free_bytes()) {
    const DenseSizes& dense = engine->loaded_->dense;
    engine->device_plan_.share.dense_bytes = dense.bytes - dense.host_bytes;
  }

  const int64_t n = engine->prefill_chunk_;
  MF_RETURN_IF_ERROR(engine->take_step_buffers());
  MF_ASSIGN_OR_RETURN(const DryRun needs,
                      dry_run(*engine->loaded_->model, n, engine->logits_.dim(0), &device));
  engine->scratch_bytes_ = needs.scratch_bytes;
  MF_ASSIGN_OR_RETURN(engine->encoder_, device.create_encoder(needs.scratch_bytes));

  engine->options_ = options;
  engine->options_.load_progress = {};  // for this call only
  engine->memory_request_ = {.available_bytes = available,
                             .context_length = engine->planned_tokens_,
                             .context_may_grow = options.context_length == 0,
                             .sequences = options.step_sequences,
                             .step_tokens_max = n,
                             .scratch_bytes = needs.scratch_bytes + engine->logits_.size_bytes() +
                                              engine->device_plan_.listed_bytes,
                             .listed_bytes = engine->device_plan_.listed_bytes,
                             .expert_cache_bytes = options.expert_cache_bytes,
                             .on_device = engine->device_plan_.share};
  engine->plan_ = plan_memory(*engine->loaded_, engine->memory_request_);
  const bool streams = engine->plan_.streams();
  if (streams && compute_as_stored(engine->loaded_->experts, device)) {
    engine->plan_ = plan_memory(*engine->loaded_, engine->memory_request_);
  }
  // When half of the reserve is gone, all of it is made good.
  engine->pressure_ =
      MemoryPressure(options.read_memory, {.low_bytes = engine->plan_.reserve_bytes / 2,
                                           .high_bytes = engine->plan_.reserve_bytes,
                                           .interval = options.memory_interval});
  if (streams || !engine->loaded_->streamed.empty()) drop_cached_files(engine->loaded_->index);
  engine->profile_path_ = options.expert_profile;
  MF_RETURN_IF_ERROR(engine->load_expert_profile());
  MF_RETURN_IF_ERROR(engine->open_readers());
  MF_RETURN_IF_ERROR(engine->open_layers());
  MF_RETURN_IF_ERROR(engine->open_networks());
  MF_RETURN_IF_ERROR(engine->open_experts());
  MF_RETURN_IF_ERROR(engine->force_routes());
  engine->bound_states();
  MF_ASSIGN_OR_RETURN(engine->fingerprint_, model_fingerprint(*engine->loaded_));
  MF_RETURN_IF_ERROR(engine->prefixes_.open(options));
  return engine;
}

Status Engine::choose_steps(const ModelSpec& spec, const EngineOptions& options) {
  MF_ASSIGN_OR_RETURN(planned_tokens_, planned_tokens_for(spec, options));
  prefill_chunk_ = prefill_chunk_for(*device_, options, planned_tokens_);
  return {};
}

Result<DensePlaces> Engine::place_dense(LoadedModel& counted, const EngineOptions& options,
                                        uint64_t available) {
  MF_RETURN_IF_ERROR(choose_steps(counted.spec(), options));
  MF_ASSIGN_OR_RETURN(counted.cache_types, cache_types_for(*device_, counted.spec(), options));
  const std::vector<uint64_t> parts = device_->free_bytes_by_part();
  if (!parts.empty()) {
    if (options.stream_dense) {
      return make_error(ErrorCode::kUnsupported,
                        "device {}: layers are streamed to one device alone (see --device)",
                        device_->name());
    }
    std::vector<double> speeds;
    for (size_t i = 0; i < parts.size(); ++i) {
      speeds.push_back(device_->part(i).memory_bytes_per_second());
    }
    MF_ASSIGN_OR_RETURN(part_of_layer_, split_layers(counted, {.free_bytes = parts,
                                                               .bytes_per_second = speeds,
                                                               .context_length = planned_tokens_,
                                                               .step_tokens = prefill_chunk_}));
    device_->place_layers(part_of_layer_);
    if (options.split != SplitMode::kLayers) {
      MF_RETURN_IF_ERROR(reach_each_other(*device_, options.split));
    }
    if (options.split == SplitMode::kAttention) {
      MF_RETURN_IF_ERROR(check_heads(counted));
      device_->divide_heads();
    }
  }
  const std::optional<uint64_t> device_free = device_->free_bytes();
  if (device_free) MF_RETURN_IF_ERROR(place_on_device(counted, options, *device_free));
  if (options.prefill_chunk == 0) MF_RETURN_IF_ERROR(lengthen_steps(counted, options, available));
  if (!options.stream_dense) {
    // Without a device of its own memory, or with nothing beside it, there is one place.
    if (!device_free || device_plan_.dense.host_bytes > 0) {
      MF_RETURN_IF_ERROR(
          check_dense_fit(counted, {.available_bytes = available,
                                    .context_length = planned_tokens_,
                                    .step_tokens = prefill_chunk_,
                                    .device_bytes = device_plan_.dense.device_bytes}));
    }
    return device_plan_.dense;
  }
  const int64_t longest = planned_tokens_ * options.step_sequences;
  MF_ASSIGN_OR_RETURN(
      DenseStream stream,
      plan_dense_stream(counted,
                        {.available_bytes = available,
                         .context_length = planned_tokens_,
                         .step_tokens = prefill_chunk_,
                         .step_tokens_max = options.prefill_chunk > 0 ? prefill_chunk_ : longest,
                         .layers_bytes = options.expert_cache_bytes,
                         .device = device_free ? &device_plan_.dense : nullptr}));
  prefill_chunk_ = stream.step_tokens;
  if (options.on_forecast) {
    LayerSpeeds speeds;
    if (stream.streamed_bytes > 0) {
      MF_ASSIGN_OR_RETURN(speeds.drive_bytes_per_second,
                          probe_layer_reads(counted, options.expert_io, kProbeSeconds));
    }
    if (stream.arranged_bytes > 0) {
      MF_ASSIGN_OR_RETURN(
          speeds.arranged_bytes_per_second,
          measure_arranging(counted, *device_, arranging_threads(), kProbeSeconds / 4));
    }
    options.on_forecast(describe_stream(stream, speeds));
  }
  device_plan_.dense = std::move(stream.places);
  return device_plan_.dense;
}

Status Engine::place_on_device(LoadedModel& counted, const EngineOptions& options,
                               uint64_t device_free) {
  const auto heads_by_part = [&](LayerId layer, int64_t heads) {
    return device_->heads_by_part(layer, heads);
  };
  Result<DevicePlan> plan = plan_device(counted, {.free_bytes = device_free,
                                                  .free_by_part = device_->free_bytes_by_part(),
                                                  .part_of_layer = part_of_layer_,
                                                  .heads_by_part = heads_by_part,
                                                  .context_length = planned_tokens_,
                                                  .step_tokens = prefill_chunk_,
                                                  .step_may_shrink = options.prefill_chunk == 0,
                                                  .copies_beside = device_->copies_beside(),
                                                  .near_cache_bytes = options.near_cache_bytes});
  if (!plan.ok()) return plan.error().with_context(formatted("device {}", device_->name()));
  device_plan_ = *std::move(plan);
  prefill_chunk_ = device_plan_.step_tokens;
  return {};
}

// Where experts are brought to a prompt, as the plan of steps that the device prefers has it.
Status Engine::lengthen_steps(LoadedModel& counted, const EngineOptions& options,
                              uint64_t available) {
  // Devices that share each layer's experts hold them all.
  const bool has_experts = counted.experts.num_experts_total() > 0;
  if (!has_experts || options.split == SplitMode::kExperts) return {};
  const int64_t n = prefill_chunk_;
  const int64_t rows = logits_rows_max(counted.spec(), n);
  MF_ASSIGN_OR_RETURN(const DryRun needs, dry_run(*counted.model, n, rows));
  const MemoryPlan memory = plan_memory(
      counted, {.available_bytes = available,
                .context_length = planned_tokens_,
                .sequences = options.step_sequences,
                .step_tokens_max = n,
                .scratch_bytes = needs.scratch_bytes + step_buffers_bytes(counted.spec(), n),
                .expert_cache_bytes = options.expert_cache_bytes,
                .on_device = device_plan_.share});
  std::vector<ExpertTable> tables;
  std::vector<DeviceMemory> devices;
  const std::optional<uint64_t> free_bytes = device_->free_bytes();
  if (free_bytes) {
    std::vector<uint64_t> parts = device_->free_bytes_by_part();
    if (parts.empty()) parts.push_back(*free_bytes);
    if (parts.size() > 1) tables = tables_by_part(counted.experts, part_of_layer_, parts.size());
    devices = memory_beside(device_plan_, parts, tables, device_->part(0).copies_beside());
  }
  MF_ASSIGN_OR_RETURN(
      prefill_chunk_,
      lengthen_step(counted, {.step_tokens = n,
                              .tokens_max = step_tokens_max(counted.spec(), options),
                              .context_length = planned_tokens_,
                              .memory = memory,
                              .devices = devices,
                              .experts = {.expert_cache_bytes = options.expert_cache_bytes,
                                          .near_cache_bytes = options.near_cache_bytes,
                                          .ring_bytes = options.ring_bytes}}));
  if (free_bytes && prefill_chunk_ > n) return place_on_device(counted, options, *free_bytes);
  return {};
}

// With a reader of its own: it belongs to another thread.
Status Engine::open_layers() {
  if (loaded_->streamed.empty()) return {};
  MF_ASSIGN_OR_RETURN(
      std::unique_ptr<AsyncReader> reader,
      make_reader(options_.expert_io,
                  {.threads = std::max(1, options_.reader_threads), .depth = kLayerReaderDepth}));
  layers_ = std::make_unique<LayerStream>(loaded_->index, loaded_->streamed, std::move(reader),
                                          arranging_threads());
  return {};
}

Status Engine::open_readers() {
  const ReaderOptions reader{.threads = std::max(1, options_.reader_threads),
                             .depth = kReaderDepth,
                             .speculative_depth = kSpeculativeDepth};
  MF_ASSIGN_OR_RETURN(reader_, make_reader(options_.expert_io, reader));
  if (loaded_->ngram_tables.empty()) return {};
  // With a reader of its own: who waits for experts collects all that a reader has.
  MF_ASSIGN_OR_RETURN(std::unique_ptr<AsyncReader> own, make_reader(options_.expert_io, reader));
  ngram_rows_ = std::make_unique<NgramRows>(loaded_->index, loaded_->ngram_tables, std::move(own));
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
  MF_ASSIGN_OR_RETURN(
      std::unique_ptr<SequenceState> state,
      SequenceState::create(state_memory_, loaded_->states(), prefill_chunk_, encoder_.get()));
  return std::unique_ptr<Sequence>(new Sequence({std::move(state), {}}));
}

}  // namespace moeflux
