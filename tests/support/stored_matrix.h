// Matrices of stored bytes on devices, and numbers to multiply them by.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "quant/weight.h"

namespace moeflux::testing {

/// Devices that compute on stored bytes.
inline constexpr const char* kCodedDevices[] = {"reference", "cpu", "emulator",
                                                "emulator with matrix units"};

/// Numbers between -1 and 1.
inline std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> number(-1.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = number(random);
  return values;
}

inline void expect_near(std::span<const float> actual, std::span<const float> expected,
                        float tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance) << what << ", element " << i;
  }
}

/// The matrix `m.layout` of `m.bytes` in memory of the device, which `buffers` own.
template <class StoredMatrix>
Weight put_on(const StoredMatrix& m, Device& device,
              std::vector<std::unique_ptr<Buffer>>& buffers) {
  auto buffer = device.allocate(m.bytes.size(), MemoryKind::kDevice);
  EXPECT_TRUE(buffer.ok() && device.upload(**buffer, 0, m.bytes).ok());
  buffers.push_back(std::move(buffer).value());
  return m.layout.at(*buffers.back(), 0);
}

}  // namespace moeflux::testing
