#include "experts/stores/resident_expert_store.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/units.h"
#include "experts/drive/expert_fetch.h"
#include "experts/whole_lease.h"

namespace moeflux {
namespace {

// Large enough that a drive's queue is full, small beside any memory.
constexpr size_t kStagingBytes = 128 * kMiB;

/// A layer's experts and the buffer they lie in.
struct ResidentLayer {
  std::unique_ptr<Buffer> buffer;
  std::vector<ExpertWeights> experts;
};
using Layers = std::vector<std::shared_ptr<ResidentLayer>>;  // encoders see that they are gone

class ResidentExpertStore : public ExpertStore {
 public:
  ResidentExpertStore(Layers layers, const ExpertStats& stats, uint64_t capacity_bytes)
      : layers_(std::move(layers)), stats_(stats), capacity_bytes_(capacity_bytes) {}

  Result<std::unique_ptr<ExpertLease>> lease(LayerId layer, Encoder& encoder,
                                             const Routes& routes) override {
    MF_RETURN_IF_ERROR(readback().show(layer, encoder, routes));
    const std::shared_ptr<ResidentLayer>& own = layers_[static_cast<size_t>(index(layer))];
    encoder.experts_stay(std::shared_ptr<const std::vector<ExpertWeights>>(own, &own->experts));
    return std::unique_ptr<ExpertLease>(std::make_unique<WholeLease>(own->experts));
  }
  ExpertStats stats() const override { return stats_; }
  uint64_t capacity_bytes() const override { return capacity_bytes_; }

 private:
  Layers layers_;
  ExpertStats stats_;
  uint64_t capacity_bytes_;
};

Result<Layers> allocate_layers(const ExpertTable& table, Device& device) {
  Layers layers;
  for (const ExpertLayer& layer : table.layers) {
    const LayerId id{static_cast<int32_t>(layers.size())};
    ResidentLayer& own = *layers.emplace_back(std::make_shared<ResidentLayer>());
    const auto count = static_cast<size_t>(layer.num_experts);
    if (count == 0) continue;
    MF_ASSIGN_OR_RETURN(own.buffer,
                        device.allocate_for(id, count * layer.slot_bytes, MemoryKind::kDevice));
    for (size_t e = 0; e < count; ++e) {
      own.experts.push_back(
          layer.weights(ExpertId{static_cast<int32_t>(e)}, *own.buffer, e * layer.slot_bytes));
    }
  }
  return layers;
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
    return device.upload(
        *layers[static_cast<size_t>(moeflux::index(arrival.key.layer))]->buffer,
        static_cast<size_t>(moeflux::index(arrival.key.expert)) * bytes,
        {staging->host_data() + static_cast<size_t>(arrival.slot) * slot_bytes, bytes});
  });
}

}  // namespace

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
  MF_ASSIGN_OR_RETURN(Layers layers, allocate_layers(table, device));
  MF_RETURN_IF_ERROR(load(table, index, reader, device, options.check_arrivals, layers));
  return std::unique_ptr<ExpertStore>(std::make_unique<ResidentExpertStore>(
      std::move(layers), ExpertStats{.bytes_read = table.bytes_total()},
      resident_experts_bytes(table)));
}

}  // namespace moeflux
