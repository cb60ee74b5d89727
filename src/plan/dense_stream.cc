#include "plan/dense_stream.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/format.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "io/reader_factory.h"
#include "plan/dry_run.h"
#include "plan/memory_plan.h"

namespace moeflux {
namespace {

// While one layer computes, one is read, and the drive need not wait for the end of either.
constexpr uint64_t kSlotsWanted = 4;
constexpr uint64_t kSlotsLeast = 2;
// The ring takes no more than this share of the layers' memory, and a longer step as much of all.
constexpr uint64_t kShare = 8;

struct LayerSize {
  uint64_t placed_bytes = 0;
  uint64_t slot_bytes = 0;
  uint64_t landing_bytes = 0;
  bool may_stream = false;
};

uint64_t sum(const std::vector<LayerSize>& layers, uint64_t LayerSize::*bytes) {
  return std::accumulate(layers.begin(), layers.end(), uint64_t{0},
                         [&](uint64_t all, const LayerSize& layer) { return all + layer.*bytes; });
}
uint64_t most(const std::vector<LayerSize>& layers, uint64_t LayerSize::*bytes) {
  uint64_t result = 0;
  for (const LayerSize& layer : layers) result = std::max(result, layer.*bytes);
  return result;
}

std::vector<LayerSize> sizes_of(const LoadedModel& model, const DensePlaces* device) {
  std::vector<LayerSize> layers(model.spec().layers.size());
  for (size_t i = 0; i < model.modules.size(); ++i) {
    const ClaimedModule& module = model.modules[i];
    const std::optional<LayerId> id = module.layer();
    if (!id || static_cast<size_t>(index(*id)) >= layers.size()) continue;
    LayerSize& layer = layers[static_cast<size_t>(index(*id))];
    const Weight stored = lay_out(module.format, 1, module.shape.back());
    const auto pages =
        LayerRing::kPageBytes * static_cast<uint64_t>(std::ranges::count_if(
                                    kPartRoles, [&](PartRole role) { return stored.has(role); }));
    layer.placed_bytes += module.placed_bytes;
    layer.slot_bytes += module.placed_bytes + pages;
    layer.landing_bytes += module.landing_bytes == 0 ? 0 : module.landing_bytes + pages;
    layer.may_stream = layer.may_stream || device == nullptr || device->on_host[i];
  }
  return layers;
}

Result<uint64_t> scratch_bytes(const LoadedModel& model, int64_t step_tokens) {
  MF_ASSIGN_OR_RETURN(const DryRun needs, dry_run(*model.model, step_tokens,
                                                  logits_rows_max(model.spec(), step_tokens)));
  return needs.scratch_bytes + step_buffers_bytes(model.spec(), step_tokens);
}

/// Bytes of the host's memory beside the matrices of layers.
struct Beside {
  uint64_t weights = 0;
  uint64_t state = 0;
  uint64_t scratch = 0;
  uint64_t reserve = 0;
  uint64_t bytes() const { return weights + state + scratch + reserve; }
};

Result<Beside> beside_layers(const LoadedModel& model, const DenseStreamRequest& request,
                             int64_t& step_tokens) {
  Beside beside{.reserve = memory_reserve(request.available_bytes)};
  if (request.device != nullptr) {
    for (size_t i = 0; i < model.modules.size(); ++i) {
      const bool counts = request.device->on_host[i] && !model.modules[i].layer();
      beside.weights += counts ? model.modules[i].placed_bytes : 0;
    }
    return beside;
  }
  MF_ASSIGN_OR_RETURN(beside.scratch, scratch_bytes(model, step_tokens));
  while (2 * step_tokens <= request.step_tokens_max) {
    MF_ASSIGN_OR_RETURN(const uint64_t more, scratch_bytes(model, 2 * step_tokens));
    if (more > request.available_bytes / kShare) break;
    step_tokens *= 2;
    beside.scratch = more;
  }
  beside.state = state_bytes(model, request.context_length, step_tokens);
  return beside;
}

// `count` of them, evenly among those that may be.
std::vector<bool> spread(const std::vector<LayerSize>& layers, uint64_t count, uint64_t of) {
  std::vector<bool> streamed(layers.size());
  uint64_t seen = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i].may_stream) continue;
    streamed[i] = (seen + 1) * count / of > seen * count / of;
    ++seen;
  }
  return streamed;
}

uint64_t bytes_of(const std::vector<LayerSize>& layers, const std::vector<bool>& streamed) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < layers.size(); ++i) bytes += streamed[i] ? layers[i].placed_bytes : 0;
  return bytes;
}

/// The ring that leaves as many layers as `room` holds, or none where all stay.
Result<LayerRing> ring_within(const std::vector<LayerSize>& layers, uint64_t room,
                              const DenseStreamRequest& request, const Beside& beside) {
  uint64_t candidates = 0;
  uint64_t all = 0;
  for (const LayerSize& layer : layers) {
    candidates += layer.may_stream ? 1 : 0;
    all += layer.may_stream ? layer.placed_bytes : 0;
  }
  if (all <= room) return LayerRing{};
  LayerRing ring{.slot_bytes = most(layers, &LayerSize::slot_bytes),
                 .landing_bytes = most(layers, &LayerSize::landing_bytes)};
  ring.slot_bytes = round_up(ring.slot_bytes, LayerRing::kPageBytes);
  ring.landing_bytes +=
      std::min(ring.slot_bytes, kLayerReaderDepth * uint64_t{ReaderOptions{}.chunk_bytes});
  const uint64_t slots = std::clamp(room / kShare / ring.slot_bytes, kSlotsLeast, kSlotsWanted);
  ring.slots = static_cast<int64_t>(std::min(slots, candidates));
  const bool is_least = request.layers_bytes == uint64_t{0};
  if (ring.bytes() > room && !is_least) {
    return make_error(
        ErrorCode::kResourceExhausted,
        "layers are to be read from the drive: two of them take {}, other weights {}, a sequence "
        "of {} tokens {}, a step {}, a reserve {}, and {} of memory are free",
        format_bytes(ring.bytes()), format_bytes(beside.weights), request.context_length,
        format_bytes(beside.state), format_bytes(beside.scratch), format_bytes(beside.reserve),
        format_bytes(request.available_bytes));
  }
  const uint64_t left = is_least ? 0 : room - ring.bytes();
  for (uint64_t count = 1; count <= candidates; ++count) {
    ring.streamed = spread(layers, count, candidates);
    if (all - bytes_of(layers, ring.streamed) <= left) break;
  }
  return ring;
}

}  // namespace

Result<DenseStream> plan_dense_stream(const LoadedModel& counted,
                                      const DenseStreamRequest& request) {
  if (counted.experts.num_experts_total() > 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--stream-dense is for models without experts: those of {} are read from the "
                      "drive as routers choose them",
                      counted.spec().model_type);
  }
  DenseStream stream{.step_tokens = request.step_tokens};
  const std::vector<LayerSize> layers = sizes_of(counted, request.device);
  stream.layers_bytes = sum(layers, &LayerSize::placed_bytes);
  MF_ASSIGN_OR_RETURN(Beside beside, beside_layers(counted, request, stream.step_tokens));
  if (request.device == nullptr) {
    beside.weights = counted.dense.bytes - std::min(counted.dense.bytes, stream.layers_bytes);
  } else {
    stream.places = *request.device;
  }
  const uint64_t taken = beside.bytes();
  const uint64_t free = request.available_bytes - std::min(taken, request.available_bytes);
  MF_ASSIGN_OR_RETURN(stream.places.ring,
                      ring_within(layers, request.layers_bytes.value_or(free), request, beside));
  const LayerRing& ring = stream.places.ring;
  if (ring.slots == 0) return stream;
  stream.streamed_bytes = bytes_of(layers, ring.streamed);
  for (const ClaimedModule& module : counted.modules) {
    const auto id = module.layer();
    if (id && ring.holds(*id)) stream.arranged_bytes += module.landing_bytes;
  }
  for (size_t i = 0; request.device != nullptr && i < counted.modules.size(); ++i) {
    const ClaimedModule& module = counted.modules[i];
    if (const auto id = module.layer(); !id || !ring.holds(*id)) continue;
    uint64_t& bytes =
        stream.places.on_host[i] ? stream.places.host_bytes : stream.places.device_bytes;
    bytes -= module.placed_bytes;
  }
  return stream;
}

double LayerSpeeds::bytes_per_second(const DenseStream& stream) const {
  if (arranged_bytes_per_second <= 0.0 || stream.arranged_bytes == 0) return drive_bytes_per_second;
  const double share =
      static_cast<double>(stream.arranged_bytes) / static_cast<double>(stream.streamed_bytes);
  return std::min(drive_bytes_per_second, arranged_bytes_per_second / share);
}

int arranging_threads() { return std::min(kArrangingThreadsMax, usable_cores()); }

std::string describe_stream(const DenseStream& stream, const LayerSpeeds& speeds) {
  if (stream.streamed_bytes == 0) return "all layers fit memory: none is read from the drive";
  const double rate = speeds.bytes_per_second(stream);
  const double steps = rate / static_cast<double>(stream.streamed_bytes);
  const std::string arranging =
      rate < speeds.drive_bytes_per_second
          ? formatted(" and brought into order at {:.2f} GB/s", rate / 1e9)
          : std::string();
  return formatted(
      "{} of the layers' {} are read from the drive for every step, at {:.2f} GB/s{}: at most "
      "{:.2f} tokens/s, {:.1f} of a prompt in steps of {} tokens",
      format_bytes(stream.streamed_bytes), format_bytes(stream.layers_bytes),
      speeds.drive_bytes_per_second / 1e9, arranging, steps,
      steps * static_cast<double>(stream.step_tokens), stream.step_tokens);
}

}  // namespace moeflux
