// Element-wise ops and norms against the reference, on contiguous and strided rows.
#include <gtest/gtest.h>

#include <cmath>

#include "base/format.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

constexpr int64_t kWidths[] = {1, 2, 7, 16, 31, 33, 64, 100, 257, 2048};
constexpr int64_t kRows[] = {1, 2, 3, 17, 64};

TEST(RmsNorm, MatchesTheReference) {
  Random random(10);
  for (const int64_t cols : kWidths) {
    for (const int64_t rows : kRows) {
      const std::vector<float> x = random.floats(rows * cols, -3.0f, 3.0f);
      const std::vector<float> w = random.floats(cols, 0.5f, 1.5f);
      // |out| is at most sqrt(cols) * 1.5; the mean of squares loses at most sqrt(cols) roundings.
      const auto root = static_cast<float>(std::sqrt(static_cast<double>(cols)));
      std::vector<float> tolerance;
      for (int64_t i = 0; i < rows * cols; ++i) {
        const auto row =
            std::span(x).subspan(static_cast<size_t>(i / cols * cols), static_cast<size_t>(cols));
        const auto rms = static_cast<float>(norm(row) / root);
        tolerance.push_back(kRounding * (6.0f + root) * 1.5f * std::abs(x[static_cast<size_t>(i)]) /
                                (rms + 1e-3f) +
                            1e-30f);
      }
      compare_with_reference(
          {"rms_norm", format("{}x{}", rows, cols), cols, tolerance}, [&](Session& s) {
            const Tensor out = s.zeros({rows, cols});
            s.encoder().rms_norm(out, s.floats({rows, cols}, x), s.floats({cols}, w), 1e-6f);
            return s.read(out);
          });
    }
  }
}

TEST(RmsNorm, NormalisesHeadsInsideAWiderRowInPlace) {
  Random random(11);
  const std::vector<float> x = random.floats(5 * 6 * 64, -3.0f, 3.0f);
  const std::vector<float> w = random.floats(32, 0.5f, 1.5f);
  const std::vector<float> tolerance(x.size(), kRounding * 12.0f * 9.0f);
  compare_with_reference({"rms_norm", "first half of each head", 64, tolerance}, [&](Session& s) {
    const Tensor heads = s.floats({5, 6, 64}, x);
    const Tensor half = heads.slice(2, 0, 32);
    s.encoder().rms_norm(half, half, s.floats({32}, w), 1e-6f);
    return s.read(heads);
  });
}

TEST(Add, IsExactAndMayBeInPlace) {
  Random random(12);
  for (const int64_t cols : kWidths) {
    for (const int64_t rows : kRows) {
      const std::vector<float> a = random.floats(rows * cols);
      const std::vector<float> b = random.floats(rows * cols);
      const std::vector<float> exact(a.size(), 0.0f);
      const std::string label = format("{}x{}", rows, cols);
      compare_with_reference({"add", label, cols, exact}, [&](Session& s) {
        const Tensor out = s.zeros({rows, cols});
        s.encoder().add(out, s.floats({rows, cols}, a), s.floats({rows, cols}, b));
        return s.read(out);
      });
      compare_with_reference({"add", label + " in place", cols, exact}, [&](Session& s) {
        const Tensor out = s.floats({rows, cols}, a);
        s.encoder().add(out, out, s.floats({rows, cols}, b));
        return s.read(out);
      });
    }
  }
}

TEST(Copy, MovesSlicesBetweenLayouts) {
  Random random(13);
  const std::vector<float> x = random.floats(3 * 4 * 20);
  const std::vector<float> exact(3 * 4 * 7, 0.0f);
  compare_with_reference({"copy", "3x4x20 columns 5 to 12", 7, exact}, [&](Session& s) {
    const Tensor out = s.zeros({3, 4, 7});
    s.encoder().copy(out, s.floats({3, 4, 20}, x).slice(2, 5, 7));
    return s.read(out);
  });
}

TEST(MulActivated, MatchesTheReferenceOverTheWholeRangeOfGates) {
  Random random(14);
  for (const Activation activation : {Activation::kSilu, Activation::kSigmoid}) {
    for (const int64_t cols : kWidths) {
      for (const int64_t rows : kRows) {
        for (const int64_t gate_cols : {cols, int64_t{1}}) {
          const std::vector<float> x = random.floats(rows * cols, -2.0f, 2.0f);
          const std::vector<float> gate = random.floats(rows * gate_cols, -100.0f, 100.0f);
          std::vector<float> tolerance;
          for (int64_t i = 0; i < rows * cols; ++i) {
            // 8 roundings of the result itself; exp(-g) below its normal range is absolute.
            const double g = gate[static_cast<size_t>(gate_cols == 1 ? i / cols : i)];
            const double sigmoid = 1.0 / (1.0 + std::exp(-g));
            const double factor = activation == Activation::kSilu ? g * sigmoid : sigmoid;
            tolerance.push_back(static_cast<float>(
                8.0 * kRounding * std::abs(factor * x[static_cast<size_t>(i)]) + 1e-36));
          }
          compare_with_reference(
              {"mul_activated", format("{}x{} gate {}", rows, cols, gate_cols), cols, tolerance},
              [&](Session& s) {
                const Tensor out = s.floats({rows, cols}, x);
                s.encoder().mul_activated(out, out, s.floats({rows, gate_cols}, gate), activation);
                return s.read(out);
              });
        }
      }
    }
  }
}

TEST(Glu, IsTheActivatedGateTimesUp) {
  Random random(15);
  const std::vector<float> gate = random.floats(3 * 50, -8.0f, 8.0f);
  const std::vector<float> up = random.floats(3 * 50);
  const std::vector<float> tolerance(gate.size(), 8.0f * kRounding * 8.0f);
  compare_with_reference({"glu", "3x50", 50, tolerance}, [&](Session& s) {
    const Tensor out = s.zeros({3, 50});
    s.encoder().glu(out, s.floats({3, 50}, gate), s.floats({3, 50}, up), {});
    return s.read(out);
  });
}

}  // namespace
}  // namespace moeflux::conformance
