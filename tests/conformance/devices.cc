// The devices that conformance tests compare.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/isa_choice.h"
#include "backend/cuda/cuda_device.h"
#include "backend/gpu/gpu_device.h"
#include "backend/metal/metal_device.h"
#include "backend/reference/reference_device.h"
#include "base/format.h"
#include "tests/conformance/support.h"
#include "tests/support/fake_metal_gpu.h"
#include "tests/support/small_gpu.h"

namespace moeflux::conformance {
namespace {

/// The portable kernels and those with the same bits, as one family: they must agree.
void add_portable(std::vector<NamedDevice>& list) {
  const std::vector<const cpu::KernelSet*> kernels = cpu::portable_kernels();
  for (const int threads : {1, 2, 3}) {
    const cpu::KernelSet* const set = threads == 2 ? kernels.front() : kernels.back();
    auto device =
        make_cpu_device({.threads = threads, .isa = set->name, .precision = Precision::kF32});
    EXPECT_TRUE(device.ok());
    list.push_back({formatted("{}/{}", set->name, threads), "portable", std::move(device).value()});
  }
}

NamedDevice on_platform(const std::string& family, int run, bool is_slow,
                        std::unique_ptr<gpu::Platform> platform) {
  const bool has_units = platform->has_matrix_units();
  auto launches = std::make_unique<testing::LaunchCounts>();
  auto device = make_gpu_device(testing::make_watched_platform(std::move(platform), *launches));
  return {formatted("{}/{}", family, run),
          family,
          std::move(device),
          is_slow,
          has_units,
          std::move(launches)};
}

void add_emulators(std::vector<NamedDevice>& list) {
  list.push_back({"emulator/1", "emulator",
                  make_metal_device(testing::make_fake_metal_gpu({.seed = 1})),
                  /*is_slow=*/true});
  const auto add = [&](const std::string& family, int run, const gpu::EmulatorOptions& options) {
    list.push_back(
        on_platform(family, run, /*is_slow=*/true, gpu::make_emulator_platform(options)));
  };
  add("emulator", 2, {.seed = 2});
  add("emulator-units", 1, {.seed = 5, .matrix_units = true});
  add("emulator-small", 1,
      {.seed = 6,
       .matrix_units = true,
       .shared_bytes = testing::kSmallGpuSharedKib * 1024,
       .cores = testing::kSmallGpuCores});
}

void add_cuda(std::vector<NamedDevice>& list) {
  const auto add = [&](const std::string& family, int run, const CudaOptions& options) {
    auto platform = make_cuda_platform(options);
    if (!platform.ok()) return;
    list.push_back(on_platform(family, run, /*is_slow=*/false, std::move(platform).value()));
  };
  add("cuda", 1, {.use_graphs = true});
  add("cuda", 2, {.use_graphs = false});
  add("cuda-small", 2,
      {.shared_kib_max = testing::kSmallGpuSharedKib,
       .multiprocessors_max = testing::kSmallGpuCores});
}

/// For checkers that make everything slow: names of the devices to open.
constexpr const char* kWanted = "MOEFLUX_TEST_DEVICES";

struct Devices {
  std::vector<NamedDevice> all;
  std::vector<std::string> absent;  // names that were asked for in vain
};

const Devices& opened_devices() {
  static const Devices opened = [] {
    std::vector<NamedDevice> list;
    for (const char* isa : {"avx512", "avx2", "neon", "generic"}) {
      for (const int threads : {1, 2, 3}) {
        auto device =
            make_cpu_device({.threads = threads, .isa = isa, .precision = Precision::kF32});
        if (!device.ok()) {
          EXPECT_EQ(device.error().code(), ErrorCode::kUnsupported) << device.error().to_string();
          continue;
        }
        list.push_back({formatted("{}/{}", isa, threads), isa, std::move(device).value()});
      }
    }
    add_portable(list);
    add_emulators(list);
    add_cuda(list);
    if (auto device = make_metal_device(); device.ok()) {
      list.push_back({"metal/2", "metal", std::move(device).value(), /*is_slow=*/false});
    }
    const char* wanted = std::getenv(kWanted);
    if (wanted == nullptr) return Devices{std::move(list), {}};
    std::vector<std::string> absent = keep_families(list, wanted);
    return Devices{std::move(list), std::move(absent)};
  }();
  return opened;
}

/// No test passes for want of devices.
class AllAreHere : public ::testing::Environment {
 public:
  void SetUp() override {
    if (std::getenv(kWanted) == nullptr) return;
    for (const std::string& name : opened_devices().absent) {
      FAIL() << kWanted << ": no device here has a name that begins with '" << name << "'";
    }
  }
};
// gtest owns and deletes it.
const ::testing::Environment* const kRegistered =
    ::testing::AddGlobalTestEnvironment(new AllAreHere);

}  // namespace

const std::vector<NamedDevice>& devices() { return opened_devices().all; }

std::vector<std::string> keep_families(std::vector<NamedDevice>& list, std::string_view wanted) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= wanted.size();) {
    const size_t end = std::min(wanted.find(',', begin), wanted.size());
    names.emplace_back(wanted.substr(begin, end - begin));
    begin = end + 1;
  }
  std::set<std::string> absent(names.begin(), names.end());
  std::erase_if(list, [&](const NamedDevice& device) {
    bool is_wanted = false;
    for (const std::string& name : names) {
      if (name.empty() || !device.family.starts_with(name)) continue;
      absent.erase(name);
      is_wanted = true;
    }
    return !is_wanted;
  });
  return {absent.begin(), absent.end()};
}

std::vector<const NamedDevice*> one_device_per_family() {
  std::vector<const NamedDevice*> chosen;
  for (const NamedDevice& device : devices()) {
    if (device.name == device.family + "/2") chosen.push_back(&device);
  }
  return chosen;
}

std::vector<const NamedDevice*> devices_with_units(bool fast_only) {
  std::vector<const NamedDevice*> chosen;
  for (const NamedDevice& device : devices()) {
    if (!device.has_units || (fast_only && device.is_slow)) continue;
    if (!chosen.empty() && chosen.back()->family == device.family) chosen.pop_back();
    chosen.push_back(&device);
  }
  return chosen;
}

Device& reference() {
  static const std::unique_ptr<Device> device = make_reference_device();
  return *device;
}

}  // namespace moeflux::conformance
