// In which order matrices are placed on a device that wants tiles, and that the order changes
// neither a number of a matrix nor a bit of the logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "load/model_loader.h"
#include "model/weights/weight_store.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiling_device.h"
#include "tests/support/tiny_model.h"

namespace moeflux {
namespace {

using testing::ExpertNames;
using testing::make_tiling_device;
using testing::make_tiny_model;
using testing::run_model;
using testing::TempFolder;
using testing::TinyModel;
using testing::TinyOptions;

constexpr std::string_view kTiling = "tiling reference";

/// A store over the tiny model, whose families' claims a test makes itself.
class Claims {
 public:
  Claims(const TinyOptions& options, std::unique_ptr<Device> device) : device_(std::move(device)) {
    make_tiny_model(options).write(folder_.path());
    auto opened = TensorIndex::open(folder_.path());
    EXPECT_TRUE(opened.ok());
    if (!opened.ok()) return;
    index_.emplace(std::move(opened).value());
    store_.emplace(
        *index_, quant_, *device_,
        WeightStore::Options{.scheme = {{options.prefix, "language_model."}, {}}, .num_layers = 2});
  }
  WeightStore& operator*() { return *store_; }
  WeightStore* operator->() { return &*store_; }

 private:
  TempFolder folder_;
  std::unique_ptr<Device> device_;
  QuantConfig quant_;
  std::optional<TensorIndex> index_;
  std::optional<WeightStore> store_;
};

WeightOrder order_of(const Weight& weight) {
  EXPECT_FALSE(weight.is_null());
  return weight.format.order;
}

std::vector<float> decoded(const Weight& weight) {
  const auto cols = static_cast<size_t>(weight.cols);
  std::vector<float> values(static_cast<size_t>(weight.rows) * cols);
  for (int64_t row = 0; row < weight.rows; ++row) {
    decode_row(weight, row, std::span(values).subspan(static_cast<size_t>(row) * cols, cols));
  }
  return values;
}

TEST(WeightOrder, LinearMatricesOfWholePanelsAreTiled) {
  for (const int bits : {4, 8}) {
    Claims tiling({.bits = bits}, make_tiling_device());
    Claims plain({.bits = bits}, testing::make_test_device({.device = "reference"}));
    const Weight tiles = tiling->matrix("layers.1.self_attn.q_proj", 64, 32);
    const Weight rows = plain->matrix("layers.1.self_attn.q_proj", 64, 32);
    ASSERT_TRUE(tiling->read().ok() && plain->read().ok());
    EXPECT_EQ(order_of(tiles), WeightOrder::kTiled);
    EXPECT_EQ(order_of(rows), WeightOrder::kRowMajor);
    EXPECT_EQ(decoded(tiles), decoded(rows)) << bits;
    EXPECT_EQ(tiling->sizes().bytes, plain->sizes().bytes);
    EXPECT_EQ(tiling->sizes().stored_bytes, plain->sizes().stored_bytes);
  }
}

TEST(WeightOrder, WhatDoesNotFitTilesStaysRowMajor) {
  for (const int bits : {4, 8}) {
    Claims claims({.bits = bits}, make_tiling_device());
    EXPECT_EQ(order_of(claims->matrix("layers.0.linear_attn.in_proj_b", 2, 32)),
              WeightOrder::kRowMajor);
    EXPECT_EQ(order_of(claims->matrix("layers.1.mlp.shared_expert_gate", 1, 32)),
              WeightOrder::kRowMajor);
  }
  for (const int bits : {0, 3, 6}) {
    Claims claims({.bits = bits}, make_tiling_device());
    EXPECT_EQ(order_of(claims->matrix("layers.1.self_attn.q_proj", 64, 32)),
              WeightOrder::kRowMajor);
  }
}

TEST(WeightOrder, PerHeadMatricesStayRowMajor) {
  Claims claims({.bits = 4}, make_tiling_device());
  EXPECT_EQ(order_of(claims->per_head_matrix("layers.1.self_attn.q_proj", 64, 32)),
            WeightOrder::kRowMajor);
}

TEST(WeightOrder, TheEmbeddingIsTiledOnlyWhereItIsTheHead) {
  Claims untied({.bits = 4}, make_tiling_device());
  const Weight table = untied->embedding(TinyModel::kVocab, 32, /*tied=*/true);
  EXPECT_EQ(order_of(table), WeightOrder::kRowMajor);  // the checkpoint has a head of its own
  EXPECT_EQ(order_of(untied->head(table, TinyModel::kVocab, 32, /*tied=*/true)),
            WeightOrder::kTiled);
  EXPECT_GT(untied->sizes().lookup_bytes, 0u);
}

TEST(WeightOrder, OnlyRoutersKeepTheirActivationsExact) {
  for (const int bits : {0, 4}) {
    Claims claims({.bits = bits}, make_tiling_device());
    EXPECT_TRUE(claims->router("layers.1.mlp.gate", 4, 32).exact_activations);
    EXPECT_FALSE(claims->matrix("layers.1.self_attn.q_proj", 64, 32).exact_activations);
  }
}

TEST(WeightOrder, ExpertsAreTiledAndSaySo) {
  for (const ExpertNames names :
       {ExpertNames::kStacked, ExpertNames::kFused, ExpertNames::kSeparate}) {
    for (const int bits : {0, 3, 4, 8}) {
      Claims claims({.experts = names, .bits = bits}, make_tiling_device());
      MoeSpec moe;
      moe.num_experts = 4;
      moe.moe_intermediate_size = 32;
      claims->experts(LayerId{1}, "layers.1.mlp", moe, 32);
      const ExpertTable table = claims->take_expert_table();
      const ExpertLayer& layer = table.layer(LayerId{1});
      ASSERT_EQ(layer.num_experts, 4);
      const bool tiles = bits == 4 || bits == 8;
      for (const Weight* matrix : {&layer.gate, &layer.up, &layer.down}) {
        EXPECT_EQ(matrix->format.order, tiles ? WeightOrder::kTiled : WeightOrder::kRowMajor);
      }
      EXPECT_EQ(layer.arrangement,
                tiles ? ExpertArrangement::kRowMajorParts : ExpertArrangement::kAsStored);
    }
  }
}

std::vector<float> logits_of(const TinyModel& model, std::string_view device, uint64_t cache) {
  const TempFolder folder;
  model.write(folder.path());
  const std::vector<TokenId> tokens = {1, 5, 63, 0, 17, 17, 42, 8};
  return run_model(folder.path(), tokens,
                   {.device = std::string(device), .expert_cache_bytes = cache})
      .logits;
}

TEST(WeightOrder, TilesDoNotChangeABitOfTheLogits) {
  for (const int bits : {0, 3, 4, 8}) {
    for (const ExpertNames names :
         {ExpertNames::kStacked, ExpertNames::kFused, ExpertNames::kSeparate}) {
      const TinyModel model = make_tiny_model({.experts = names, .bits = bits});
      const std::vector<float> expected = logits_of(model, "reference", 0);
      ASSERT_EQ(expected.size(), 8u * TinyModel::kVocab);
      for (const uint64_t cache : {uint64_t{0}, uint64_t{1} << 20}) {
        EXPECT_EQ(logits_of(model, kTiling, cache), expected) << bits << " bits";
      }
    }
  }
}

TEST(WeightOrder, TiedHeadComputesTheSameFromTiles) {
  for (const int bits : {4, 8}) {
    TinyModel model = make_tiny_model({.bits = bits});
    for (const std::string part : {".weight", ".scales", ".biases"}) {
      model.tensors.erase("language_model.lm_head" + part);
    }
    model.config["tie_word_embeddings"] = true;
    const std::vector<float> expected = logits_of(model, "reference", 0);
    ASSERT_FALSE(expected.empty());
    EXPECT_EQ(logits_of(model, kTiling, 0), expected);
  }
}

/// Memory that the host cannot address, on a device that wants tiles.
class OwnMemoryDevice : public Device {
 public:
  class OwnBuffer : public Buffer {
   public:
    explicit OwnBuffer(size_t bytes) : bytes_(bytes) {}
    size_t size_bytes() const override { return bytes_.size(); }
    std::byte* host_data() const override { return nullptr; }
    std::vector<std::byte> bytes_;
  };

  std::string_view name() const override { return "own memory"; }
  std::string_view description() const override { return name(); }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind) override {
    return std::unique_ptr<Buffer>(std::make_unique<OwnBuffer>(bytes));
  }
  Status upload(Buffer& to, uint64_t offset, std::span<const std::byte> from) override {
    ++uploads;
    std::ranges::copy(from, static_cast<OwnBuffer&>(to).bytes_.data() + offset);
    return {};
  }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t) override {
    return Error(ErrorCode::kUnsupported, "no encoder");
  }
  WeightOrder preferred_order(const QuantFormat&, int64_t, int64_t) const override {
    return WeightOrder::kTiled;
  }

  int uploads = 0;
};

// Three pieces of staging memory, the last one short.
TEST(WeightOrder, MatrixReadInPiecesHoldsEveryRowOnAnyMemory) {
  constexpr int64_t kRows = 16 * 60;
  constexpr int64_t kCols = 4096;
  const TempFolder folder;
  std::mt19937 random(11);
  std::vector<std::vector<std::byte>> bytes;
  std::vector<safetensors::WriteEntry> entries;
  const auto add = [&](std::string name, DType dtype, const Shape& shape) {
    const auto size = static_cast<size_t>(shape.num_elements() * dtype_bits(dtype) / 8);
    std::vector<std::byte>& data = bytes.emplace_back(size);
    for (std::byte& b : data) b = static_cast<std::byte>(random() & 0x3fu);  // no NaN, no infinity
    entries.push_back({.name = std::move(name), .dtype = dtype, .shape = shape, .data = data});
  };
  bytes.reserve(3);
  add("m.weight", DType::kU32, {kRows, kCols / 8});
  add("m.scales", DType::kBf16, {kRows, kCols / 64});
  add("m.biases", DType::kBf16, {kRows, kCols / 64});
  ASSERT_TRUE(safetensors::write_file(folder / "model.safetensors", entries, {}).ok());
  auto index = TensorIndex::open(folder.path());
  ASSERT_TRUE(index.ok());
  const QuantConfig quant;
  const auto load = [&](Device& device, std::vector<std::unique_ptr<Buffer>>& buffers) {
    WeightStore store(*index, quant, device, {.scheme = {{""}, {}}});
    const Weight weight = store.matrix("m", kRows, kCols);
    EXPECT_TRUE(store.finish().ok());
    EXPECT_TRUE(store.read().ok());
    buffers = store.take_buffers();
    return weight;
  };
  const auto tiling = make_tiling_device();
  const auto reference = testing::make_test_device({.device = "reference"});
  std::vector<std::unique_ptr<Buffer>> tile_buffers, row_buffers;
  const Weight tiles = load(*tiling, tile_buffers);
  const Weight rows = load(*reference, row_buffers);
  ASSERT_EQ(order_of(tiles), WeightOrder::kTiled);
  EXPECT_TRUE(decoded(tiles) == decoded(rows));

  OwnMemoryDevice own;
  std::vector<std::unique_ptr<Buffer>> own_buffers;
  const Weight uploaded = load(own, own_buffers);
  ASSERT_EQ(order_of(uploaded), WeightOrder::kTiled);
  EXPECT_EQ(own.uploads, 3);
  const auto& memory =
      static_cast<OwnMemoryDevice::OwnBuffer&>(*uploaded.parts.codes.buffer).bytes_;
  EXPECT_TRUE(std::equal(memory.data() + uploaded.parts.codes.offset_bytes,
                         memory.data() + uploaded.parts.codes.offset_bytes + uploaded.size_bytes(),
                         host_ptr<std::byte>(tiles.parts.codes)));
}

}  // namespace
}  // namespace moeflux
