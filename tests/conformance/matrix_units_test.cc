// Products on matrix units, as the emulator computes them step by step: against the reference, and
// the same bits for a token alone as among others.
#include <gtest/gtest.h>

#include "backend/gpu/emulator/emulator.h"
#include "backend/gpu/gpu_device.h"
#include "base/format.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

Device& units() {
  static const std::unique_ptr<Device> device =
      make_gpu_device(gpu::make_emulator_platform({.seed = 3, .matrix_units = true}));
  return *device;
}

std::vector<QuantFormat> formats() {
  return {QuantFormat::affine(4, 64, DType::kBf16), QuantFormat::affine(8, 64, DType::kF16),
          QuantFormat::affine(4, 128, DType::kF16), QuantFormat::affine(8, 128, DType::kBf16)};
}

std::vector<float> product(Device& device, const EncodedWeight& w, std::span<const float> x,
                           int64_t n) {
  Session s(device);
  const Tensor out = s.zeros({n, w.rows});
  s.encoder().linear(out, s.floats({n, w.cols}, x), s.weight(w));
  return s.read(out);
}

TEST(MatrixUnits, ProductsMatchTheReferenceAndDoNotDependOnOtherTokens) {
  Random random(60);
  for (const QuantFormat& format : formats()) {
    for (const int64_t cols : {128, 1152}) {
      const int64_t rows = cols == 128 ? 40 : 21;
      const int64_t n = cols == 128 ? 70 : 6;
      const EncodedWeight w = random_weight(random, format, rows, cols);
      const std::vector<float> x = random.floats(n * cols, -2.0f, 2.0f);
      const std::vector<float> expected = product(reference(), w, x, n);
      const std::vector<float> got = product(units(), w, x, n);
      for (int64_t t = 0; t < n; ++t) {
        for (int64_t r = 0; r < rows; ++r) {
          const auto at = static_cast<size_t>(t * rows + r);
          EXPECT_NEAR(got[at], expected[at],
                      dot_tolerance(row_of(w.decoded, r, cols), row_of(x, t, cols)))
              << format.to_string() << ", " << cols << " columns, token " << t << ", row " << r;
        }
      }
      const std::string what = moeflux::format("{}, {} columns", format.to_string(), cols);
      for (const int64_t t : {int64_t{0}, n - 1}) {
        expect_same_bits(what, row_of(got, t, rows), product(units(), w, row_of(x, t, cols), 1));
      }
      expect_same_bits(what, std::span(got).first(static_cast<size_t>(3 * rows)),
                       product(units(), w, std::span(x).first(static_cast<size_t>(3 * cols)), 3));
    }
  }
}

TEST(MatrixUnits, ProductsOfOneInputShareALaunchAndKeepTheirBits) {
  Random random(61);
  const std::vector<float> x = random.floats(6 * 256);
  std::vector<EncodedWeight> weights;
  for (const int64_t rows : {200, 5, 33, 16, 40}) {
    weights.push_back(random_weight(random, formats()[static_cast<size_t>(rows % 2)], rows, 256));
  }
  for (const int64_t n : {1, 6}) {
    Session s(units());
    const std::span<const float> some(x.data(), static_cast<size_t>(n * 256));
    const Tensor in = s.floats({n, 256}, some);
    std::vector<Tensor> outs;
    for (const EncodedWeight& w : weights) outs.push_back(s.zeros({n, w.rows}));
    std::vector<Weight> views;
    for (const EncodedWeight& w : weights) views.push_back(s.weight(w));
    for (size_t i = 0; i < weights.size(); ++i) s.encoder().linear(outs[i], in, views[i]);
    for (size_t i = 0; i < weights.size(); ++i) {
      expect_same_bits(format("matrix {}, {} tokens", i, n), product(units(), weights[i], some, n),
                       s.read(outs[i]));
    }
  }
}

TEST(MatrixUnits, ExpertsMatchTheReferenceAndDoNotDependOnOtherTokens) {
  Random random(62);
  for (const QuantFormat& format : formats()) {
    // Of 4-bit matrices, tiles with more than half their tokens and with fewer.
    const int64_t n = format.group_size == 64 ? 40 : 6;
    MoeProblem p = MoeProblem::make(
        random, format, {.hidden = 640, .intermediate = 128, .experts = 4, .top_k = 2, .n = n});
    p.add_biases(random, DType::kBf16);
    Session oracle(reference());
    const std::vector<float> expected = p.run(oracle, p.all_at_once());
    Session whole(units());
    const std::vector<float> got = p.run(whole, p.all_at_once());
    ASSERT_EQ(got.size(), expected.size());
    double error = 0.0;
    double size = 0.0;
    for (size_t i = 0; i < got.size(); ++i) {
      error += (got[i] - expected[i]) * (got[i] - expected[i]);
      size += expected[i] * expected[i];
    }
    EXPECT_LE(error, 1e-10 * size) << format.to_string();
    const auto slots = static_cast<size_t>(p.top_k * p.hidden);
    for (const int64_t t : {int64_t{0}, n - 1}) {
      Session s(units());
      const std::vector<float> alone = p.run_tokens(s, t, 1, p.all_at_once());
      expect_same_bits(moeflux::format("{}, token {}", format.to_string(), t),
                       std::span(got).subspan(static_cast<size_t>(t) * slots, slots),
                       std::span(alone).first(slots));
    }
  }
}

}  // namespace
}  // namespace moeflux::conformance
