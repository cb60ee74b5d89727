// States whose memory may be the device's or the host's.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "backend/encoder.h"
#include "backend/reference/reference_device.h"
#include "state/sequence_state.h"

namespace moeflux {
namespace {

// A checkpoint has the device's memory until it is dropped, and the state the host's.
TEST(NearState, WhatEveryStepReadsComesBackToTheDevice) {
  const std::unique_ptr<Device> device = make_reference_device();
  auto made_encoder = device->create_encoder(0);
  ASSERT_TRUE(made_encoder.ok());
  const std::unique_ptr<Encoder> encoder = std::move(made_encoder).value();
  const auto memory = std::make_shared<StateMemory>(*device);
  memory->bound({{.near_bytes = 1024, .kept_bytes = 1024}});
  const LayerStateSpec delta{{{.extent = StateExtent::kFixed, .shape = {3, 10}},
                              {.extent = StateExtent::kFixed, .shape = {3, 8, 5}}}};
  auto made = SequenceState::create(memory, {delta}, 16, encoder.get());
  ASSERT_TRUE(made.ok());
  const std::unique_ptr<SequenceState> state = std::move(made).value();
  const auto value = [&] { return host_ptr<float>(state->fixed(LayerId{0}, 1)); };
  int64_t length = 0;
  const auto step = [&] {
    ASSERT_TRUE(state->reserve(++length, *encoder).ok());
    ASSERT_TRUE(encoder->wait(encoder->submit()).ok());
    state->advance(1);
  };
  step();
  EXPECT_EQ(memory->far_bytes(), 0u);
  value()[100] = 7.0f;
  std::unique_ptr<SequenceState> checkpoint = state->share();
  step();
  EXPECT_EQ(memory->far_bytes(), 480u);
  value()[100] = 8.0f;
  const float* const far = value();
  step();
  EXPECT_EQ(value(), far);
  EXPECT_EQ(host_ptr<float>(checkpoint->fixed(LayerId{0}, 1))[100], 7.0f);
  checkpoint.reset();
  step();
  EXPECT_EQ(memory->far_bytes(), 0u);
  EXPECT_EQ(value()[100], 8.0f);
  const float* const near = value();
  step();
  EXPECT_EQ(value(), near);
}

}  // namespace
}  // namespace moeflux
