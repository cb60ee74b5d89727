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

// There may be no GPU, or no CUDA: then the error is about that.
TEST(OpenDevice, TakesACudaDeviceAsASmallerOne) {
  const auto small = open_device({.name = "cuda:0,shared=99,multiprocessors=24"});
  if (small.ok()) {
    EXPECT_EQ((*small)->name(), "cuda:0");
    EXPECT_NE((*small)->description().find("as if 24 with 99 KiB"), std::string_view::npos);
  } else {
    EXPECT_NE(small.error().code(), ErrorCode::kInvalidArgument) << small.error().to_string();
  }
}

TEST(OpenDevice, BoundsADevicesOwnMemory) {
  const auto small = open_device({.name = "emulator,memory=3"});
  ASSERT_TRUE(small.ok()) << small.error().to_string();
  EXPECT_EQ((*small)->free_bytes(), uint64_t{3} << 20);
  EXPECT_FALSE((*small)->allocate((3 << 20) + 1, MemoryKind::kDevice).ok());
  for (const char* name : {"emulator,memory=0", "emulator,memory=x", "emulator,cores=1"}) {
    expect_error(open_device({.name = name}), ErrorCode::kInvalidArgument, {name, "memory=MIB"});
  }
  const auto cuda = open_device({.name = "cuda:0,memory=512"});
  if (cuda.ok()) {
    EXPECT_LE((*cuda)->free_bytes(), uint64_t{512} << 20);
  } else {
    EXPECT_NE(cuda.error().code(), ErrorCode::kInvalidArgument) << cuda.error().to_string();
  }
}

TEST(ChooseDevice, TakesAGpuUnlessOptionsAreTheCpus) {
  const bool has_gpu = open_device({.name = "cuda:0"}).ok();
  EXPECT_EQ(choose_device({.name = "auto"}).name, has_gpu ? "cuda:0" : "cpu");
  const DeviceOptions cpus[] = {{.name = "auto", .isa = "generic"},
                                {.name = "auto", .precision = "f32"},
                                {.name = "auto", .pin_threads = true}};
  for (const DeviceOptions& options : cpus) {
    EXPECT_EQ(choose_device(options).name, "cpu");
  }
  EXPECT_EQ(choose_device({.name = "reference"}).name, "reference");
  const auto device = open_device({.name = "auto"});
  ASSERT_TRUE(device.ok()) << device.error().to_string();
  EXPECT_EQ((*device)->name(), choose_device({.name = "auto"}).name);
}

TEST(ListDevices, HasTheCpuFirstAndSaysWhyAGpuIsNotThere) {
  const std::vector<ListedDevice> devices = list_devices();
  ASSERT_FALSE(devices.empty());
  EXPECT_EQ(devices[0].name, "cpu");
  EXPECT_TRUE(devices[0].is_there);
  EXPECT_EQ(devices[1].name, "cuda:0");
  for (const ListedDevice& device : devices) EXPECT_FALSE(device.description.empty());
}

TEST(OpenDevice, SaysWhatIsWrong) {
  expect_error(open_device({.name = "tpu"}), ErrorCode::kInvalidArgument, {"tpu", "reference"});
#ifndef __APPLE__
  expect_error(open_device({.name = "metal"}), ErrorCode::kUnsupported, {"metal", "macOS"});
#endif
  expect_error(open_device({.name = "cuda:x"}), ErrorCode::kInvalidArgument, {"cuda:x"});
  for (const char* limit : {"", "shared=", "shared=31", "shared=228", "shared=99k", "cores=2",
                            "multiprocessors=0", "multiprocessors=-1"}) {
    expect_error(open_device({.name = std::string("cuda:0,") + limit}), ErrorCode::kInvalidArgument,
                 {"device cuda:0,", "32 to 227 KiB", "multiprocessors=N"});
  }
  expect_error(open_device({.name = ""}), ErrorCode::kInvalidArgument, {"known are"});
  expect_error(open_device({.threads = -1}), ErrorCode::kInvalidArgument, {"-1 threads", "1024"});
  expect_error(open_device({.isa = "mmx"}), ErrorCode::kInvalidArgument, {"mmx"});
  expect_error(open_device({.numa = "spread"}), ErrorCode::kInvalidArgument, {"spread", "isolate"});
  expect_error(open_device({.precision = "f16"}), ErrorCode::kInvalidArgument, {"f16", "int8"});
  expect_error(open_device({.name = "reference", .precision = "int8"}), ErrorCode::kInvalidArgument,
               {"int8", "reference"});
}

}  // namespace
}  // namespace moeflux
