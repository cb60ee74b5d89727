#include "tests/conformance/fusion.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/gpu/gpu_device.h"
#include "base/format.h"
#include "tests/support/plan_trace.h"

namespace moeflux::conformance {
namespace {

std::vector<std::vector<float>> results(Device& device, const Ops& ops, bool apart) {
  Session s(device);
  const std::vector<Tensor> written = ops(s, [&] {
    if (apart) s.encoder().submit();
  });
  std::vector<std::vector<float>> values;
  for (const Tensor& tensor : written) values.push_back(s.read(tensor));
  return values;
}

size_t launches(const Ops& ops) {
  gpu::PlanLog log;
  const auto device = make_gpu_device(gpu::make_plan_trace_platform(log, /*matrix_units=*/true));
  Session s(*device);
  (void)ops(s, [] {});
  s.encoder().submit();
  return static_cast<size_t>(
      std::count_if(log.lines.begin(), log.lines.end(),
                    [](const std::string& line) { return !line.starts_with("write "); }));
}

}  // namespace

void expect_same_bits_in(size_t expected_launches, const std::string& what, const Ops& ops) {
  EXPECT_EQ(launches(ops), expected_launches) << what;
  for (const NamedDevice* named : devices_with_units()) {
    expect_same_results(formatted("{}, {}", named->name, what), results(*named->device, ops, true),
                        results(*named->device, ops, false));
  }
}

}  // namespace moeflux::conformance
