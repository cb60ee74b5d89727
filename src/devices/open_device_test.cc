#include "devices/open_device.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;

TEST(OpenDevice, NamesTheDeviceItOpened) {
  for (const char* name : {"cpu", "reference"}) {
    const auto device = open_device({.name = name});
    ASSERT_TRUE(device.ok()) << device.error().to_string();
    EXPECT_EQ((*device)->name(), name);
  }
}

TEST(OpenDevice, SaysWhatIsWrong) {
  expect_error(open_device({.name = "tpu"}), ErrorCode::kInvalidArgument, {"tpu", "reference"});
#ifndef __APPLE__
  expect_error(open_device({.name = "metal"}), ErrorCode::kUnsupported, {"metal", "macOS"});
#endif
  expect_error(open_device({.name = "cuda:x"}), ErrorCode::kInvalidArgument, {"cuda:x"});
  expect_error(open_device({.name = ""}), ErrorCode::kInvalidArgument, {"known are"});
  expect_error(open_device({.threads = -1}), ErrorCode::kInvalidArgument, {"-1 threads", "1024"});
  expect_error(open_device({.isa = "mmx"}), ErrorCode::kInvalidArgument, {"mmx"});
  expect_error(open_device({.precision = "f16"}), ErrorCode::kInvalidArgument, {"f16", "int8"});
  expect_error(open_device({.name = "reference", .precision = "int8"}), ErrorCode::kInvalidArgument,
               {"int8", "reference"});
}

}  // namespace
}  // namespace moeflux
