#include "plan/machine_probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_device.h"
#include "backend/trace/trace_device.h"
#include "engine/tiny_engine_test_util.h"
#include "model/family/public_models.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

// Keeps what it has allocated, so that a test can look at it afterwards.
class KeepingDevice : public Device {
 public:
  KeepingDevice(std::unique_ptr<Device> inner, WeightOrder order)
      : inner_(std::move(inner)), order_(order) {}
  std::string_view name() const override { return "keeping"; }
  std::string_view description() const override { return inner_->description(); }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, inner_->allocate(bytes, kind));
    kept_.push_back(std::move(buffer));
    return std::unique_ptr<Buffer>(new View(*kept_.back()));
  }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t scratch_bytes) override {
    return inner_->create_encoder(scratch_bytes);
  }
  WeightOrder preferred_order(const QuantFormat&, int64_t, int64_t) const override {
    return order_;
  }
  std::vector<std::span<const std::byte>> kept() const {
    std::vector<std::span<const std::byte>> bytes;
    for (const auto& buffer : kept_) bytes.emplace_back(buffer->host_data(), buffer->size_bytes());
    return bytes;
  }

 private:
  class View : public Buffer {
   public:
    explicit View(Buffer& buffer) : buffer_(buffer) {}
    size_t size_bytes() const override { return buffer_.size_bytes(); }
    std::byte* host_data() const override { return buffer_.host_data(); }

   private:
    Buffer& buffer_;
  };

  std::unique_ptr<Device> inner_;
  WeightOrder order_;
  std::vector<std::unique_ptr<Buffer>> kept_;
};

class MachineProbeTest : public TinyEngineTest {};

TEST_F(MachineProbeTest, ReadsBlobsOfAnExpertsSize) {
  const auto model = load_model(folder_.path(), *device_, WeightLoading::kCheckOnly);
  ASSERT_TRUE(model.ok());
  const auto probe = probe_expert_reads(**model, IoMode::kPread, 0.0);
  ASSERT_TRUE(probe.ok()) << probe.error().to_string();
  EXPECT_EQ(probe->points.size(), 4u);
  EXPECT_GT(probe->bytes_per_second, 0.0);
}

TEST_F(MachineProbeTest, AModelThatIsOnlyAssumedHasNothingToRead) {
  const std::unique_ptr<Device> trace = make_trace_device();
  const auto config = testing::make_tiny_model({}).config.dump();
  const auto model = assume_model(config, *trace, {});
  ASSERT_TRUE(model.ok());
  testing::expect_error(probe_expert_reads(**model, IoMode::kPread, 0.0), ErrorCode::kNotFound,
                        {"no files"});
}

TEST_F(MachineProbeTest, CountsWhatADeviceMultiplies) {
  const auto rate = measure_multiply_adds(*device_, 0.0);
  ASSERT_TRUE(rate.ok()) << rate.error().to_string();
  EXPECT_GT(*rate, 0.0);
}

TEST_F(MachineProbeTest, MultipliesNoZeros) {
  for (const WeightOrder order : {WeightOrder::kRowMajor, WeightOrder::kTiled}) {
    auto cpu = make_cpu_device({.threads = 1});
    ASSERT_TRUE(cpu.ok());
    KeepingDevice device(std::move(cpu).value(), order);
    ASSERT_TRUE(measure_multiply_adds(device, 0.0).ok());
    const auto kept = device.kept();
    ASSERT_GE(kept.size(), 3u);
    for (const std::span<const std::byte> bytes : kept) {
      const auto zeros = std::count(bytes.begin(), bytes.end(), std::byte{0});
      EXPECT_LT(zeros, static_cast<int64_t>(bytes.size() / 64)) << bytes.size() << " bytes";
    }
    std::vector<float> products(kept.back().size() / sizeof(float));
    std::memcpy(products.data(), kept.back().data(), kept.back().size());
    for (const float product : products) ASSERT_TRUE(std::isfinite(product));
  }
}

TEST(MeasureArranging, IsOfMatricesThatADeviceWantsInAnotherOrder) {
  const auto found = find_public_model("qwen3-8b");
  ASSERT_TRUE(found.ok());
  const auto cpu = make_cpu_device({.threads = 2});
  ASSERT_TRUE(cpu.ok());
  const auto trace = make_trace_device(cpu->get());
  const auto tiled = assume_model(found->config_json, *trace, {});
  ASSERT_TRUE(tiled.ok());
  const auto speed = measure_arranging(**tiled, **cpu, 2, 0.01);
  ASSERT_TRUE(speed.ok());
  EXPECT_GT(*speed, 1e6);
  const auto plain = make_trace_device();
  const auto as_stored = assume_model(found->config_json, *plain, {});
  ASSERT_TRUE(as_stored.ok());
  EXPECT_EQ(*measure_arranging(**as_stored, **cpu, 2, 0.01), 0.0);
}

}  // namespace
}  // namespace moeflux
