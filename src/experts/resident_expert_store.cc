#include "experts/resident_expert_store.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/units.h"

namespace moeflux {
namespace {

// Large enough that a drive's queue is full, small beside any memory.
constexpr size_t kStagingBytes = 128 * kMiB;

/// A layer's experts and the buffer they lie in.
struct ResidentLayer {
  std::unique_ptr<Buffer> buffer;
  std::vector<ExpertWeights> experts;
};

class ResidentLease : public ExpertLease {
 public:
  explicit ResidentLease(std::span<const ExpertWeights> experts) : experts_(experts) {}
  Result<std::span<const ExpertWeights>> wait_some() override {
    return std::exchange(experts_, {});
  }

 private:
  std::span<const ExpertWeights> experts_;
};

class ResidentExpertStore : public ExpertStore {
 public:
  ResidentExpertStore(std::vector<ResidentLayer> layers, const ExpertStats& stats,
                      uint64_t capacity_bytes)
      : layers_(std::move(layers)), stats_(stats), capacity_bytes_(capacity_bytes) {}

  Result<std::unique_ptr<ExpertLease>> lease(LayerId layer, Encoder&, const Routes&) override {
    return std::unique_ptr<ExpertLease>(
        std::make_unique<ResidentLease>(layers_[static_cast<size_t>(index(layer))].experts));
  }
  ExpertStats stats() const override { return stats_; }
  uint64_t capacity_bytes() const override { return capacity_bytes_; }

 private:
  std::vector<ResidentLayer> layers_;
  ExpertStats stats_;
  uint64_t capacity_bytes_;
};

/// Brings experts from files to the device through memory that both reach.
class Loader {
 public:
  Loader(const TensorIndex& index, AsyncReader& reader, Device& device, size_t slot_bytes_max)
      : index_(index), reader_(reader), device_(device), scratch_(slot_bytes_max) {}

  Status open() {
    MF_ASSIGN_OR_RETURN(staging_, device_.allocate(std::max(kStagingBytes, scratch_.size()),
                                                   MemoryKind::kHostVisible));
    MF_CHECK(staging_->host_data() != nullptr);
    return {};
  }

  Result<ResidentLayer> load(const ExpertLayer& layer) {
    ResidentLayer loaded;
    const auto count = static_cast<size_t>(layer.num_experts);
    if (count == 0) return loaded;
    MF_ASSIGN_OR_RETURN(loaded.buffer,
                        device_.allocate(count * layer.slot_bytes, MemoryKind::kDevice));
    const size_t batch = staging_->size_bytes() / layer.slot_bytes;
    for (size_t first = 0; first < count; first += batch) {
      const size_t last = std::min(count, first + batch);
      MF_RETURN_IF_ERROR(read_experts(layer, first, last));
      MF_RETURN_IF_ERROR(
          device_.upload(*loaded.buffer, first * layer.slot_bytes,
                         std::span(staging_->host_data(), (last - first) * layer.slot_bytes)));
    }
    for (size_t e = 0; e < count; ++e) {
      loaded.experts.push_back(
          layer.weights(ExpertId{static_cast<int32_t>(e)}, *loaded.buffer, e * layer.slot_bytes));
    }
    return loaded;
  }

 private:
  Status read_experts(const ExpertLayer& layer, size_t first, size_t last) {
    requests_.clear();
    for (size_t e = first; e < last; ++e) {
      std::byte* const slot = staging_->host_data() + (e - first) * layer.slot_bytes;
      for (const ExpertExtent& extent : layer.extents_of(ExpertId{static_cast<int32_t>(e)})) {
        requests_.push_back({.file = &index_.file(extent.file),
                             .offset = extent.offset,
                             .into = {slot + extent.slot_offset, extent.bytes},
                             .tag = e});
      }
    }
    reader_.submit(requests_);
    Status failure;
    while (reader_.in_flight() > 0) {
      for (const ReadCompletion& completion : reader_.wait()) {
        if (failure.ok() && !completion.status.ok()) failure = completion.status;
      }
    }
    MF_RETURN_IF_ERROR(failure);
    for (size_t e = first; e < last; ++e) {
      std::byte* const slot = staging_->host_data() + (e - first) * layer.slot_bytes;
      arrange_slot(layer, {slot, layer.slot_bytes}, scratch_);
    }
    return {};
  }

  const TensorIndex& index_;
  AsyncReader& reader_;
  Device& device_;
  std::unique_ptr<Buffer> staging_;
  std::vector<std::byte> scratch_;
  std::vector<ReadRequest> requests_;
};

}  // namespace

uint64_t resident_experts_bytes(const ExpertTable& table) {
  uint64_t bytes = 0;
  for (const ExpertLayer& layer : table.layers) {
    bytes += static_cast<uint64_t>(layer.num_experts) * layer.slot_bytes;
  }
  return bytes;
}

Result<std::unique_ptr<ExpertStore>> make_resident_expert_store(const ExpertTable& table,
                                                                const TensorIndex& index,
                                                                AsyncReader& reader,
                                                                Device& device) {
  if (table.slot_bytes_max() == 0) return make_empty_expert_store();
  Loader loader(index, reader, device, table.slot_bytes_max());
  MF_RETURN_IF_ERROR(loader.open());
  std::vector<ResidentLayer> layers;
  for (size_t l = 0; l < table.layers.size(); ++l) {
    Result<ResidentLayer> layer = loader.load(table.layers[l]);
    if (!layer.ok()) return layer.error().with_context("experts of layer " + std::to_string(l));
    layers.push_back(std::move(layer).value());
  }
  return std::unique_ptr<ExpertStore>(std::make_unique<ResidentExpertStore>(
      std::move(layers), ExpertStats{.bytes_read = table.bytes_total()},
      resident_experts_bytes(table)));
}

}  // namespace moeflux
