// A checkpoint file of experts whose bytes follow from their keys, and the encoder that leases
// need.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backend/host_buffer.h"
#include "backend/trace/trace_device.h"
#include "backend/trace/trace_encoder.h"
#include "checkpoint/safetensors.h"
#include "experts/stores/streamed_expert_store.h"
#include "tests/support/temp_folder.h"

namespace moeflux {

/// A device whose memory is real and whose encoder is never asked for.
class HostMemoryDevice : public Device {
 public:
  std::string_view name() const override { return "host"; }
  std::string_view description() const override { return "host memory"; }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind) override {
    return allocate_host_buffer(bytes);
  }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t) override {
    return Error(ErrorCode::kUnsupported, "no encoder");
  }
};

/// Hands out the ids of a test as a router's choice; counts waits.
class RoutingEncoder : public TraceEncoder {
 public:
  Routes choose(std::vector<int32_t> ids, int64_t tokens = 1) {
    ids_ = std::move(ids);
    const Shape shape{tokens, static_cast<int64_t>(ids_.size()) / tokens};
    return {scratch(shape, DType::kI32), scratch(shape, DType::kF32)};
  }
  Status read(std::span<std::byte> to, Tensor) override {
    EXPECT_EQ(to.size(), ids_.size() * sizeof(int32_t));
    std::memcpy(to.data(), ids_.data(), to.size());
    return {};
  }
  Status wait(EventId) override {
    ++waits_;
    return {};
  }
  int waits() const { return waits_; }

 private:
  std::vector<int32_t> ids_;
  int waits_ = 0;
};

class ExpertWorld {
 public:
  static constexpr int32_t kLayers = 3;
  static constexpr int32_t kExperts = 12;
  static constexpr int64_t kHidden = 8;

  /// Layers of `dense` have no experts.
  explicit ExpertWorld(const std::set<int32_t>& dense = {}) {
    std::string bytes;
    for (int32_t l = 0; l < kLayers; ++l) {
      if (dense.contains(l)) {
        table_.layers.emplace_back();
      } else {
        bytes += append_layer(l, bytes.size());
      }
    }
    const safetensors::WriteEntry entry{.name = "experts",
                                        .dtype = DType::kU8,
                                        .shape = {static_cast<int64_t>(bytes.size())},
                                        .data = std::as_bytes(std::span(bytes))};
    const Status written =
        safetensors::write_file(folder_ / "model.safetensors", std::span(&entry, 1), {});
    EXPECT_TRUE(written.ok());
    auto opened = TensorIndex::open(folder_.path());
    EXPECT_TRUE(opened.ok());
    index_.emplace(std::move(opened).value());
    const uint64_t begin = index_->find("experts")->offset_bytes;
    for (ExpertLayer& layer : table_.layers) {
      for (ExpertExtent& extent : layer.extents) extent.offset += begin;
    }
  }

  const ExpertTable& table() const { return table_; }
  const TensorIndex& index() const { return *index_; }
  Device& device() { return device_; }
  size_t slot_bytes() const { return table_.slot_bytes_max(); }

  std::unique_ptr<ExpertStore> store(AsyncReader& reader, size_t slots,
                                     std::optional<size_t> staging = {},
                                     LookaheadMode lookahead = LookaheadMode::kOff) {
    // A layer's demand without a token's: hints have ranks, and nothing is guarded.
    auto made = make_streamed_expert_store(table_, *index_, reader, device_,
                                           {.capacity_bytes = slots * slot_bytes(),
                                            .demand = {.per_layer = kExperts, .per_token = 0},
                                            .staging = staging,
                                            .lookahead = lookahead});
    EXPECT_TRUE(made.ok());
    return std::move(made).value();
  }

  /// True when every byte of the expert's three matrices is what the file holds for this key.
  bool holds_its_bytes(int32_t layer, const ExpertWeights& expert) const {
    const std::array<const Weight*, 3> matrices = {&expert.gate, &expert.up, &expert.down};
    for (size_t m = 0; m < matrices.size(); ++m) {
      const std::string expected =
          matrix_bytes(layer, moeflux::index(expert.expert), m, matrices[m]->size_bytes());
      if (std::memcmp(host_ptr<std::byte>(matrices[m]->parts.codes), expected.data(),
                      expected.size()) != 0) {
        return false;
      }
    }
    return true;
  }

 private:
  static std::string matrix_bytes(int32_t layer, int32_t expert, size_t matrix, size_t count) {
    uint64_t state = static_cast<uint64_t>(layer * 1000 + expert) * 10 + matrix + 1;
    std::string bytes(count, '\0');
    for (char& byte : bytes) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      byte = static_cast<char>(state >> 56);
    }
    return bytes;
  }

  // Layers differ in size, so that slots are larger than what some layers put in them. All gates of
  // a layer lie together, then all ups, then all downs, as in stacked checkpoints.
  std::string append_layer(int32_t l, uint64_t begin) {
    ExpertLayer layer;
    layer.num_experts = kExperts;
    layer.gate.rows = layer.up.rows = layer.down.cols = 4 + 4 * l;
    layer.gate.cols = layer.up.cols = layer.down.rows = kHidden;
    const std::array<Weight*, 3> matrices = {&layer.gate, &layer.up, &layer.down};
    for (Weight* matrix : matrices) matrix->format = QuantFormat::plain(DType::kF32);
    lay_out_slot(layer);
    layer.extents_per_expert = 3;
    const auto part = static_cast<uint64_t>(layer.gate.rows * kHidden) * sizeof(float);
    for (uint64_t e = 0; e < kExperts; ++e) {
      for (uint64_t m = 0; m < 3; ++m) {
        layer.extents.push_back(
            {0, begin + (m * kExperts + e) * part, part, matrices[m]->parts.codes.offset_bytes});
      }
    }
    std::string bytes;
    for (size_t m = 0; m < 3; ++m) {
      for (int32_t e = 0; e < kExperts; ++e) bytes += matrix_bytes(l, e, m, part);
    }
    table_.layers.push_back(std::move(layer));
    return bytes;
  }

  testing::TempFolder folder_;
  HostMemoryDevice device_;
  ExpertTable table_;
  std::optional<TensorIndex> index_;
};

/// A lease's deliveries, wave by wave, up to its end or its first error.
struct Delivery {
  std::vector<std::vector<int32_t>> waves;
  Status status;
  bool bytes_right = true;

  std::vector<int32_t> sorted() const {
    std::vector<int32_t> all;
    for (const auto& wave : waves) all.insert(all.end(), wave.begin(), wave.end());
    std::sort(all.begin(), all.end());
    return all;
  }
};

constexpr StepRows kOneOfDecode{.rows = 1, .phase = StepPhase::kDecode};
constexpr StepRows prompt_of(int64_t tokens) {
  return {.rows = tokens, .phase = StepPhase::kPrompt};
}

/// Takes at most `waves_max` waves of a lease, of a step with these rows.
inline Delivery deliver(const ExpertWorld& world, ExpertStore& store, RoutingEncoder& encoder,
                        int32_t layer, std::vector<int32_t> ids, int waves_max,
                        std::span<const StepRows> rows) {
  Delivery delivery;
  const ScratchScope scope(encoder);
  store.begin_step(rows, encoder);
  int64_t tokens = 0;
  for (const StepRows& part : rows) tokens += part.rows;
  auto lease = store.lease(LayerId{layer}, encoder, encoder.choose(std::move(ids), tokens));
  if (!lease.ok()) {
    delivery.status = lease.error();
    return delivery;
  }
  for (int i = 0; i < waves_max; ++i) {
    const auto ready = (*lease)->wait_some();
    if (!ready.ok()) {
      delivery.status = ready.error();
      return delivery;
    }
    if (ready->empty()) return delivery;
    delivery.waves.emplace_back();
    for (const ExpertWeights& expert : *ready) {
      delivery.waves.back().push_back(moeflux::index(expert.expert));
      delivery.bytes_right = delivery.bytes_right && world.holds_its_bytes(layer, expert);
    }
  }
  return delivery;
}
/// The same of one sequence.
inline Delivery deliver(const ExpertWorld& world, ExpertStore& store, RoutingEncoder& encoder,
                        int32_t layer, std::vector<int32_t> ids, int waves_max = 1000,
                        const StepRows& rows = kOneOfDecode) {
  return deliver(world, store, encoder, layer, std::move(ids), waves_max, std::span(&rows, 1));
}

}  // namespace moeflux
