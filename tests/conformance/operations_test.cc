// Every operation on every device: encoders refuse what is wrong before they record it, and compute
// what the reference does.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "tests/conformance/operation_cases.h"

namespace moeflux::conformance {
namespace {

TEST(OperationDeathTest, EncodersRefuseWhatIsWrong) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::vector<Device*> all = {&reference()};
  for (const NamedDevice* device : one_device_per_family()) all.push_back(device->device.get());
  for (Device* device : all) {
    Session s(*device);
    Lists lists;
    ops::Linear op = make_case<ops::Linear>(s, lists);
    op.weight.cols = 31;
    EXPECT_DEATH(s.encoder().run(op), "linear: columns of x is 32, expected 31") << device->name();
  }
}

/// Numbers that the operation wrote.
template <typename Op>
std::vector<float> written(Session& s, const Op& op) {
  std::vector<float> values;
  op.operands([&](Use use, std::string_view, const auto& x) {
    if constexpr (std::is_same_v<decltype(x), const Tensor&>) {
      // The rotary part of queries may be left as it was, and workspace as well.
      if (use == Use::kRead || !x.is_contiguous() || Op::kName == "latent_attention") return;
      if (x.dtype == DType::kI32) {
        const std::vector<int32_t> ids = s.read_ints(x);
        values.insert(values.end(), ids.begin(), ids.end());
      } else {
        const std::vector<float> own = s.read(x);
        values.insert(values.end(), own.begin(), own.end());
      }
    }
  });
  if constexpr (requires { op.heads.v_up; }) values = s.read(op.out);
  return values;
}

template <typename Op>
void expect_agreement() {
  const Run run = [](Session& s) {
    Lists lists;
    const Op op = make_case<Op>(s, lists);
    s.encoder().run(op);
    return written(s, op);
  };
  Session oracle(reference());
  const std::vector<float> expected = run(oracle);
  const std::vector<float> tolerance(expected.size(), 2e-5f * std::max(1.0f, largest(expected)));
  compare_with_reference({std::string(Op::kName), "an instance", 1, tolerance}, run);
}

TEST(Operations, AgreeWithTheReference) {
  for_each_operation([]<typename Op>(const Op*) { expect_agreement<Op>(); });
}

TEST(Operations, EveryDeviceSaysThatItComputesThem) {
  for (const NamedDevice& device : devices()) {
    Session s(*device.device);
    for_each_operation([&]<typename Op>(const Op*) {
      Lists lists;
      const Op op = make_case<Op>(s, lists);
      const Status status = device.device->supports({ops::kind_of<Op>(), &op});
      EXPECT_TRUE(status.ok()) << device.name << ": " << status.error().message();
    });
  }
}

}  // namespace
}  // namespace moeflux::conformance
