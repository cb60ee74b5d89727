#include "plan/dense_stream.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/trace/trace_device.h"
#include "base/units.h"
#include "model/family/public_models.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;

class DenseStreamPlan : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto found = find_public_model("qwen3.8-27b");
    ASSERT_TRUE(found.ok());
    auto counted = assume_model(found->config_json, *device_, {});
    ASSERT_TRUE(counted.ok());
    model_ = std::move(counted).value();
  }
  Result<DenseStream> plan(uint64_t available_bytes) const {
    return plan_dense_stream(*model_, {.available_bytes = available_bytes,
                                       .context_length = 4096,
                                       .step_tokens = 512,
                                       .step_tokens_max = 4096});
  }

  std::unique_ptr<Device> device_ = make_trace_device();
  std::unique_ptr<LoadedModel> model_;
};

TEST_F(DenseStreamPlan, LessMemoryStreamsMoreLayersUntilTwoDoNotFit) {
  uint64_t before = 0;
  uint64_t gib = 20;
  for (; gib > 0; --gib) {
    const auto stream = plan(gib * kGiB);
    if (!stream.ok()) break;
    EXPECT_GE(stream->streamed_bytes, before);
    before = stream->streamed_bytes;
    // All that stays and the ring fit beside the rest.
    const uint64_t layers = stream->layers_bytes - stream->streamed_bytes;
    const uint64_t others = model_->dense.bytes - stream->layers_bytes;
    EXPECT_LE(layers + others + stream->places.ring.bytes(), gib * kGiB - 512 * kMiB) << gib;
  }
  EXPECT_GT(before, model_->dense.bytes / 2);
  EXPECT_LE(gib, 4u);
  expect_error(plan(gib * kGiB), ErrorCode::kResourceExhausted,
               {"two of them take", "4096 tokens", "of memory are free"});
}

TEST_F(DenseStreamPlan, NothingIsStreamedWhereAllFits) {
  const auto stream = plan(64 * kGiB);
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ(stream->places.ring.slots, 0);
  EXPECT_EQ(describe_stream(*stream, {}), "all layers fit memory: none is read from the drive");
}

TEST_F(DenseStreamPlan, StreamedLayersLieEvenlyAmongTheOthers) {
  const auto stream = plan(10 * kGiB);
  ASSERT_TRUE(stream.ok());
  const std::vector<bool>& streamed = stream->places.ring.streamed;
  const auto half = streamed.begin() + static_cast<ptrdiff_t>(streamed.size() / 2);
  const auto first = std::count(streamed.begin(), half, true);
  EXPECT_GT(first, 0);
  EXPECT_NEAR(static_cast<double>(first),
              static_cast<double>(std::count(half, streamed.end(), true)), 1.0);
}

TEST_F(DenseStreamPlan, TheForecastIsTheDrivesSpeedOverWhatAStepReads) {
  DenseStream stream{.step_tokens = 2048, .layers_bytes = 12 * kGiB, .streamed_bytes = 4 * kGiB};
  const double gib = static_cast<double>(kGiB);
  EXPECT_EQ(
      describe_stream(stream, {.drive_bytes_per_second = 2.0 * gib}),
      "4.00 GiB of the layers' 12.0 GiB are read from the drive for every step, at 2.15 GB/s: "
      "at most 0.50 tokens/s, 1024.0 of a prompt in steps of 2048 tokens");
}

TEST_F(DenseStreamPlan, TheForecastCountsWhatTakesLongerReadingOrArranging) {
  DenseStream stream{.step_tokens = 2048, .layers_bytes = 12 * kGiB, .streamed_bytes = 4 * kGiB};
  const double gib = static_cast<double>(kGiB);
  const LayerSpeeds speeds{.drive_bytes_per_second = 2.0 * gib, .arranged_bytes_per_second = gib};
  EXPECT_EQ(speeds.bytes_per_second(stream), 2.0 * gib);
  stream.arranged_bytes = 2 * kGiB;
  EXPECT_EQ(speeds.bytes_per_second(stream), 2.0 * gib);
  stream.arranged_bytes = 4 * kGiB;
  EXPECT_EQ(speeds.bytes_per_second(stream), gib);
  EXPECT_EQ(
      describe_stream(stream, speeds),
      "4.00 GiB of the layers' 12.0 GiB are read from the drive for every step, at 2.15 GB/s and "
      "brought into order at 1.07 GB/s: at most 0.25 tokens/s, 512.0 of a prompt in steps of 2048 "
      "tokens");
}

}  // namespace
}  // namespace moeflux
