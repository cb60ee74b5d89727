#include "load/layer_stream.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "backend/trace/trace_device.h"
#include "backend/trace/trace_encoder.h"
#include "load/model_loader.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_families.h"
#include "tests/support/io/faulty_reader.h"
#include "tests/support/run_model.h"

namespace moeflux {
namespace {

using testing::expect_error;

/// A model of four layers of seven matrices, all of them in a ring of two slots.
class LayerStreamTest : public ::testing::Test {
 protected:
  LayerStreamTest() {
    const DensePlanner plan = [](LoadedModel& counted) -> Result<DensePlaces> {
      DensePlaces places;
      places.ring = {.streamed = std::vector<bool>(counted.spec().layers.size(), true),
                     .slots = 2,
                     .slot_bytes = 1 << 20};
      return places;
    };
    auto loaded =
        load_model(testing::golden_folder("llama"), *device_, WeightLoading::kRead, {}, plan);
    EXPECT_TRUE(loaded.ok());
    model_ = std::move(loaded).value();
    encoder_ = device_->create_encoder(0).value();
  }
  void read_by(FaultyReaderOptions options) {
    stream_ = std::make_unique<LayerStream>(model_->index, model_->streamed,
                                            std::make_unique<FaultyReader>(std::move(options)));
  }
  Status begin(int32_t layer) { return stream_->begin_layer(LayerId{layer}, *encoder_); }
  /// The bytes of the layer in memory are those of the file.
  void expect_layer(int32_t layer) {
    for (const StreamedModule& module : model_->streamed) {
      if (module.layer != LayerId{layer}) continue;
      const TensorEntry& entry = *module.from.parts.codes.entry;
      std::vector<std::byte> stored(entry.size_bytes);
      ASSERT_TRUE(model_->index.file(entry.file).read_at(entry.offset_bytes, stored).ok());
      const auto* there = host_ptr<std::byte>(module.to.parts.codes);
      EXPECT_TRUE(std::equal(stored.begin(), stored.end(), there)) << module.from.name;
    }
  }

  std::unique_ptr<Device> device_ = testing::make_test_device({});
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<Encoder> encoder_;
  std::unique_ptr<LayerStream> stream_;
};

TEST_F(LayerStreamTest, BringsLayersRoundAndRoundInAnyOrderOfArrival) {
  read_by({.seed = 3, .delay_waits_max = 5, .completions_per_wait_max = 2});
  for (int step = 0; step < 3; ++step) {
    for (int32_t layer = 0; layer < 4; ++layer) {
      ASSERT_TRUE(begin(layer).ok());
      expect_layer(layer);
    }
  }
  EXPECT_GE(stream_->stats().bytes_read, 3 * model_->dense.streamed_bytes);
}

TEST_F(LayerStreamTest, AStepMayBeginAnewAfterAnyLayer) {
  read_by({});
  for (const int32_t layer : {0, 1, 0, 1, 2, 0, 1, 2, 3, 0}) {
    ASSERT_TRUE(begin(layer).ok());
    expect_layer(layer);
  }
}

TEST_F(LayerStreamTest, ReadsASecondTimeWhatFailedOnce) {
  read_by({.failing_reads = {2, 16}});  // of layers 0 and 1
  for (int32_t layer = 0; layer < 4; ++layer) {
    ASSERT_TRUE(begin(layer).ok()) << layer;
    expect_layer(layer);
  }
}

TEST_F(LayerStreamTest, WhatFailsTwiceIsReportedAndReadAgainForTheNextStep) {
  read_by({.failing_reads = {1, 8}});  // both times of layer 0
  expect_error(begin(0), ErrorCode::kIo, {"layer 0", "module "});
  for (int32_t layer = 0; layer < 4; ++layer) {
    ASSERT_TRUE(begin(layer).ok()) << layer;
    expect_layer(layer);
  }
}

TEST_F(LayerStreamTest, LayersThatAreInMemoryNeedNothing) {
  read_by({});
  EXPECT_TRUE(begin(17).ok());
}

}  // namespace
}  // namespace moeflux
