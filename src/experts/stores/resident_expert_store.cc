#include "experts/stores/resident_expert_store.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "base/units.h"
#include "experts/drive/expert_fetch.h"

namespace moeflux {
namespace {

// Large enough that a drive's queue is full, small beside any memory.
constexpr size_t kStagingBytes = 128 * kMiB;

/// Experts of a layer, one behind another in the memory of a device.
struct ResidentPart {
  size_t device = 0;
  std::unique_ptr<Buffer> buffer;
  std::vector<ExpertWeights> experts;
};
using Layer = std::vector<std::shared_ptr<ResidentPart>>;  // encoders see that they are gone
using Layers = std::vector<Layer>;

/// Delivers what other devices have first, which compute it beside the layer's own.
class PartsLease : public ExpertLease {
 public:
  PartsLease(const Layer& layer, size_t own) : layer_(layer), own_(own) {
    while (next_ < layer_.size() && layer_[next_]->device == own_) ++next_;
  }
  bool begins_elsewhere() const override { return next_ < layer_.size(); }
  Result<std::span<const ExpertWeights>> wait_some() override {
    if (next_ < layer_.size()) {
      const std::span<const ExpertWeights> wave = layer_[next_++]->experts;
      while (next_ < layer_.size() && layer_[next_]->device == own_) ++next_;
      return wave;
    }
    std::span<const ExpertWeights> last;
    for (const std::shared_ptr<ResidentPart>& part : layer_) {
      if (part->device == own_ && !has_delivered_own_) last = part->experts;
    }
    has_delivered_own_ = true;
    return last;
  }

 private:
  const Layer& layer_;
  size_t own_;
  size_t next_ = 0;
  bool has_delivered_own_ = false;
};

class ResidentExpertStore : public ExpertStore {
 public:
  ResidentExpertStore(Layers layers, const Device& device, const ExpertStats& stats,
                      uint64_t capacity_bytes)
      : layers_(std::move(layers)),
        device_(device),
        stats_(stats),
        capacity_bytes_(capacity_bytes) {}

  Result<std::unique_ptr<ExpertLease>> lease(LayerId layer, Encoder& encoder,
                                             const Routes& routes) override {
    MF_RETURN_IF_ERROR(readback().show(layer, encoder, routes));
    const Layer& own = layers_[static_cast<size_t>(index(layer))];
    for (const std::shared_ptr<ResidentPart>& part : own) {
      encoder.on_part(part->device)
          .experts_stay(std::shared_ptr<const std::vector<ExpertWeights>>(part, &part->experts));
    }
    return std::unique_ptr<ExpertLease>(std::make_unique<PartsLease>(own, device_.part_of(layer)));
  }
  ExpertStats stats() const override { return stats_; }
  uint64_t capacity_bytes() const override { return capacity_bytes_; }

 private:
  Layers layers_;
  const Device& device_;
  ExpertStats stats_;
  uint64_t capacity_bytes_;
};

Result<Layers> allocate_layers(const ExpertTable& table, Device& device,
                               std::span<const double> shares) {
  Layers layers;
  for (const ExpertLayer& layer : table.layers) {
    const LayerId id{static_cast<int32_t>(layers.size())};
    Layer& own = layers.emplace_back();
    std::vector<int32_t> ends = share_ends(layer.num_experts, shares);
    if (shares.empty()) ends = {layer.num_experts};
    int32_t begin = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
      const auto count = static_cast<size_t>(ends[i] - begin);
      if (count == 0) continue;
      ResidentPart& part = *own.emplace_back(std::make_shared<ResidentPart>());
      part.device = shares.empty() ? device.part_of(id) : i;
      const size_t bytes = count * layer.slot_bytes;
      MF_ASSIGN_OR_RETURN(part.buffer, shares.empty()
                                           ? device.allocate_for(id, bytes, MemoryKind::kDevice)
                                           : device.part(i).allocate(bytes, MemoryKind::kDevice));
      for (size_t e = 0; e < count; ++e) {
        part.experts.push_back(layer.weights(ExpertId{begin + static_cast<int32_t>(e)},
                                             *part.buffer, e * layer.slot_bytes));
      }
      begin = ends[i];
    }
  }
  return layers;
}

// Where an expert lies.
const ResidentPart& part_of(const Layer& layer, ExpertId expert) {
  size_t at = 0;
  while (layer[at]->experts.back().expert < expert) ++at;
  return *layer[at];
}

// Through a ring of slots that drive and device both reach: one reads while the other copies.
Status load(const ExpertTable& table, const TensorIndex& index, AsyncReader& reader, Device& device,
            bool check_arrivals, const Layers& layers) {
  const size_t slot_bytes = table.slot_bytes_max();
  const size_t slots = std::max<size_t>(1, kStagingBytes / slot_bytes);
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<Buffer> staging,
                      device.allocate(slots * slot_bytes, MemoryKind::kHostVisible));
  MF_CHECK(staging->host_data() != nullptr);
  ExpertFetch fetch(table, index, reader,
                    {.memory = {staging->host_data(), slots * slot_bytes},
                     .slot_bytes = slot_bytes,
                     .check_arrivals = check_arrivals});
  std::vector<ExpertCache::Slot> free;
  for (size_t slot = slots; slot-- > 0;) free.push_back(ExpertCache::Slot(slot));
  const auto take_slot = [&](ExpertKey) {
    const ExpertCache::Slot slot = free.back();
    free.pop_back();
    return slot;
  };
  return fetch_all(table, fetch, slots, take_slot, [&](const ExpertFetch::Arrival& arrival) {
    const size_t bytes = table.layer(arrival.key.layer).slot_bytes;
    free.push_back(arrival.slot);
    const ResidentPart& part =
        part_of(layers[static_cast<size_t>(moeflux::index(arrival.key.layer))], arrival.key.expert);
    const auto at = static_cast<size_t>(moeflux::index(arrival.key.expert) -
                                        moeflux::index(part.experts.front().expert));
    return device.upload(
        *part.buffer, at * bytes,
        {staging->host_data() + static_cast<size_t>(arrival.slot) * slot_bytes, bytes});
  });
}

}  // namespace

std::vector<int32_t> share_ends(int32_t num_experts, std::span<const double> shares) {
  std::vector<int32_t> ends;
  double sum = 0.0;
  for (const double share : shares) {
    sum += share;
    ends.push_back(
        std::clamp(static_cast<int32_t>(std::lround(sum * num_experts)), 0, num_experts));
  }
  if (!ends.empty()) ends.back() = num_experts;
  return ends;
}

uint64_t resident_experts_bytes(const ExpertTable& table) {
  uint64_t bytes = 0;
  for (const ExpertLayer& layer : table.layers) {
    bytes += static_cast<uint64_t>(layer.num_experts) * layer.slot_bytes;
  }
  return bytes;
}

Result<std::unique_ptr<ExpertStore>> make_resident_expert_store(
    const ExpertTable& table, const TensorIndex& index, AsyncReader& reader, Device& device,
    const ResidentExpertStoreOptions& options) {
  if (table.slot_bytes_max() == 0) return make_empty_expert_store();
  MF_ASSIGN_OR_RETURN(Layers layers, allocate_layers(table, device, options.shares));
  MF_RETURN_IF_ERROR(load(table, index, reader, device, options.check_arrivals, layers));
  return std::unique_ptr<ExpertStore>(std::make_unique<ResidentExpertStore>(
      std::move(layers), device, ExpertStats{.bytes_read = table.bytes_total()},
      resident_experts_bytes(table)));
}

}  // namespace moeflux
