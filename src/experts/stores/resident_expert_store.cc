#include "experts/stores/resident_expert_store.h"

#include <algorithm>
#include <optional>
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

class ResidentExpertStore : public ExpertStore {
 public:
  ResidentExpertStore(std::vector<std::shared_ptr<ResidentLayer>> layers, const ExpertStats& stats,
                      uint64_t capacity_bytes)
      : layers_(std::move(layers)), stats_(stats), capacity_bytes_(capacity_bytes) {}

  Result<std::unique_ptr<ExpertLease>> lease(LayerId layer, Encoder& encoder,
                                             const Routes& routes) override {
    MF_RETURN_IF_ERROR(routes_.show(layer, encoder, routes));
    const std::shared_ptr<ResidentLayer>& own = layers_[static_cast<size_t>(index(layer))];
    encoder.experts_stay(std::shared_ptr<const std::vector<ExpertWeights>>(own, &own->experts));
    return std::unique_ptr<ExpertLease>(std::make_unique<WholeLease>(own->experts));
  }
  ExpertStats stats() const override { return stats_; }
  uint64_t capacity_bytes() const override { return capacity_bytes_; }

 private:
  std::vector<std::shared_ptr<ResidentLayer>> layers_;  // encoders see that they are gone
  ExpertStats stats_;
  uint64_t capacity_bytes_;
};

/// Brings experts from files to the device through a ring of slots that both reach, so that the
/// drive reads while the device copies.
class Loader {
 public:
  Loader(const ExpertTable& table, Device& device) : table_(table), device_(device) {}

  Status load(const TensorIndex& index, AsyncReader& reader,
              const ResidentExpertStoreOptions& options) {
    const size_t slot_bytes = table_.slot_bytes_max();
    const size_t slots = std::max<size_t>(1, kStagingBytes / slot_bytes);
    MF_ASSIGN_OR_RETURN(const std::unique_ptr<Buffer> staging,
                        device_.allocate(slots * slot_bytes, MemoryKind::kHostVisible));
    MF_CHECK(staging->host_data() != nullptr);
    MF_RETURN_IF_ERROR(allocate_layers());
    ExpertFetch fetch(table_, index, reader,
                      {.memory = {staging->host_data(), slots * slot_bytes},
                       .slot_bytes = slot_bytes,
                       .check_arrivals = options.check_arrivals});
    std::optional<ExpertKey> next = first_from(0);
    for (uint32_t slot = 0; slot < slots; ++slot) start_next(fetch, ExpertCache::Slot{slot}, next);
    while (fetch.in_flight() > 0) {
      for (const ExpertFetch::Arrival& arrival : fetch.wait()) {
        MF_RETURN_IF_ERROR(arrival.status);
        MF_RETURN_IF_ERROR(upload(
            arrival.key, {staging->host_data() + static_cast<size_t>(arrival.slot) * slot_bytes,
                          table_.layer(arrival.key.layer).slot_bytes}));
        start_next(fetch, arrival.slot, next);
      }
    }
    return {};
  }
  std::vector<std::shared_ptr<ResidentLayer>> take_layers() { return std::move(layers_); }

 private:
  Status allocate_layers() {
    for (const ExpertLayer& layer : table_.layers) {
      ResidentLayer& loaded = *layers_.emplace_back(std::make_shared<ResidentLayer>());
      const auto count = static_cast<size_t>(layer.num_experts);
      if (count == 0) continue;
      MF_ASSIGN_OR_RETURN(loaded.buffer,
                          device_.allocate(count * layer.slot_bytes, MemoryKind::kDevice));
      for (size_t e = 0; e < count; ++e) {
        loaded.experts.push_back(
            layer.weights(ExpertId{static_cast<int32_t>(e)}, *loaded.buffer, e * layer.slot_bytes));
      }
    }
    return {};
  }
  Status upload(ExpertKey key, std::span<const std::byte> bytes) {
    Buffer& to = *layers_[static_cast<size_t>(index(key.layer))]->buffer;
    return device_.upload(to, static_cast<size_t>(index(key.expert)) * bytes.size(), bytes);
  }
  std::optional<ExpertKey> first_from(size_t layer) const {
    while (layer < table_.layers.size() && table_.layers[layer].num_experts == 0) ++layer;
    if (layer == table_.layers.size()) return std::nullopt;
    return ExpertKey{LayerId{static_cast<int32_t>(layer)}, ExpertId{0}};
  }
  void start_next(ExpertFetch& fetch, ExpertCache::Slot slot, std::optional<ExpertKey>& next) {
    if (!next) return;
    fetch.start(*next, slot, ReadPriority::kDemand);
    const ExpertId following{index(next->expert) + 1};
    if (index(following) < table_.layer(next->layer).num_experts) {
      next->expert = following;
    } else {
      next = first_from(static_cast<size_t>(index(next->layer)) + 1);
    }
  }

  const ExpertTable& table_;
  Device& device_;
  std::vector<std::shared_ptr<ResidentLayer>> layers_;
};

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
  Loader loader(table, device);
  MF_RETURN_IF_ERROR(loader.load(index, reader, options));
  return std::unique_ptr<ExpertStore>(std::make_unique<ResidentExpertStore>(
      loader.take_layers(), ExpertStats{.bytes_read = table.bytes_total()},
      resident_experts_bytes(table)));
}

}  // namespace moeflux
