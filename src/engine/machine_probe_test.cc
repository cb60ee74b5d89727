#include "engine/machine_probe.h"

#include <gtest/gtest.h>

#include "backend/trace/trace_device.h"
#include "engine/tiny_engine_test_util.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

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

}  // namespace
}  // namespace moeflux
