// Tolerances follow what kernels do with activations, not the name of a device.
#include <gtest/gtest.h>

#include "base/format.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

double allowance_of_linear(const NamedDevice& device, const QuantFormat& format, int64_t n) {
  Random random(110);
  const EncodedWeight w = random_weight(random, format, 8, 128);
  const std::vector<float> x = random.floats(n * w.cols);
  const Run linear = [&](Session& s) {
    const Tensor out = s.zeros({n, w.rows});
    s.encoder().run(ops::Linear{out, s.floats({n, w.cols}, x), s.weight(w)});
    return s.read(out);
  };
  return run_on(device, linear).allowance;
}

TEST(Tolerance, IsWideOnlyWhereProductsSeeActivationsOfSixteenBits) {
  ASSERT_FALSE(devices().empty());
  for (const NamedDevice& device : devices()) {
    for (const int64_t n : {1, 5}) {
      for (const QuantFormat& format : unit_formats()) {
        EXPECT_EQ(allowance_of_linear(device, format, n), device.has_units ? 16.0 : 1.0)
            << device.name << ", " << format.to_string();
      }
      for (const QuantFormat& format :
           {QuantFormat::plain(DType::kF32), QuantFormat::plain(DType::kBf16),
            QuantFormat::affine(3, 64, DType::kBf16), QuantFormat::affine(6, 128, DType::kF16),
            QuantFormat::affine(3, 32, DType::kBf16), QuantFormat::affine(5, 64, DType::kF32)}) {
        EXPECT_EQ(allowance_of_linear(device, format, n), 1.0)
            << device.name << ", " << format.to_string();
      }
    }
  }
}

TEST(Tolerance, OfExpertsIsWideOnlyIfTheyRunOnMatrixUnits) {
  Random random(111);
  const MoeSizes sizes{.hidden = 128, .intermediate = 128, .experts = 4, .top_k = 2, .n = 3};
  const MoeProblem alike = MoeProblem::make(random, unit_formats().front(), sizes);
  MoeProblem mixed = alike;
  for (EncodedWeight& up : mixed.up) up = random_weight(random, unit_formats()[1], 128, 128);
  for (const NamedDevice& device : devices()) {
    const auto allowed = [&](const MoeProblem& p) {
      return run_on(device, [&](Session& s) { return p.run(s, p.all_at_once()); }).allowance;
    };
    EXPECT_EQ(allowed(alike), device.has_units ? 16.0 : 1.0) << device.name;
    EXPECT_EQ(allowed(mixed), 1.0) << device.name;
  }
}

}  // namespace
}  // namespace moeflux::conformance
