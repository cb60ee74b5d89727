// Element-wise ops and norms against the reference, on contiguous and strided rows.
#include <gtest/gtest.h>

#include <cmath>

#include "base/format.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

/// Roundings of the result, and of the exponential's argument, which grow with it. Where tanh is
/// nearly -1 the definition itself is only good to the f64 roundings of 1.
float gated_unit_tolerance(double gate, double up, const GluOptions& unit) {
  const bool is_gelu = unit.activation == Activation::kGeluTanh;
  const double cubed = gate * gate * gate;
  const double argument = is_gelu ? 1.6 * std::abs(gate + 0.045 * cubed) : unit.alpha * gate;
  const double value = gated_unit(gate, up, unit);
  // Soft caps are right to a few roundings of the cap.
  const bool is_capped = unit.activation == Activation::kSoftCapped;
  const double caps = is_capped ? 8.0 * kRounding * unit.limit * unit.alpha : 0.0;
  const double definition =
      is_gelu ? 0x1p-52 * std::abs(gate * up) : caps / (1.0 + std::exp(-gate));
  return static_cast<float>((10.0 + 4.0 * std::abs(argument)) * kRounding * std::abs(value) +
                            definition + 1e-36);
}

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
          {"rms_norm", formatted("{}x{}", rows, cols), cols, tolerance}, [&](Session& s) {
            const Tensor out = s.zeros({rows, cols});
            s.encoder().run(
                ops::RmsNorm{out, s.floats({rows, cols}, x), s.floats({cols}, w), 1e-6f});
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
    s.encoder().run(ops::RmsNorm{half, half, s.floats({32}, w), 1e-6f});
    return s.read(heads);
  });
}

TEST(RmsNorm, TakesWeightsInTurn) {
  Random random(20);
  for (const int64_t n : {1, 5, 2100}) {
    for (const int64_t cols : {7, 16, 300, n < 10 ? 4096 : 128}) {
      const std::vector<float> x = random.floats(n * 4 * cols, -3.0f, 3.0f);
      const std::vector<float> w = random.floats(4 * cols, 0.5f, 1.5f);
      const std::vector<float> tolerance(x.size(), kRounding * 16.0f * 9.0f);
      compare_with_reference(
          {"rms_norm", formatted("{}x4 of {}", n, cols), cols, tolerance}, [&](Session& s) {
            const Tensor streams = s.floats({n, 4, cols}, x);
            s.encoder().run(ops::RmsNorm{streams, streams, s.floats({4, cols}, w), 1e-6f});
            return s.read(streams);
          });
    }
  }
}

TEST(RmsNorm, NormalisesManyHeadsAndGatesThem) {
  Random random(19);
  const int64_t n = 2100;  // 8400 rows: a SIMD group of a GPU has several
  const std::vector<float> x = random.floats(n * 4 * 16, -3.0f, 3.0f);
  const std::vector<float> gates = random.floats(n * 4 * 8, -3.0f, 3.0f);
  const std::vector<float> w = random.floats(8, 0.5f, 1.5f);
  const std::vector<float> tolerance(x.size(), kRounding * 12.0f * 9.0f);
  compare_with_reference({"rms_norm", "many gated heads", 16, tolerance}, [&](Session& s) {
    const Tensor heads = s.floats({n, 4, 16}, x);
    const Tensor half = heads.slice(2, 8, 8);
    s.encoder().run(ops::RmsNorm{half, half, s.floats({8}, w), 1e-6f});
    s.encoder().run(
        ops::MulActivated{half, half, s.floats({n, 4, 8}, gates), Activation::kSigmoid});
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
      const std::string label = formatted("{}x{}", rows, cols);
      compare_with_reference({"add", label, cols, exact}, [&](Session& s) {
        const Tensor out = s.zeros({rows, cols});
        s.encoder().run(ops::Add{out, s.floats({rows, cols}, a), s.floats({rows, cols}, b)});
        return s.read(out);
      });
      compare_with_reference({"add", label + " in place", cols, exact}, [&](Session& s) {
        const Tensor out = s.floats({rows, cols}, a);
        s.encoder().run(ops::Add{out, out, s.floats({rows, cols}, b)});
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
    s.encoder().run(ops::Copy{out, s.floats({3, 4, 20}, x).slice(2, 5, 7)});
    return s.read(out);
  });
}

TEST(MulActivated, MatchesTheReferenceOverTheWholeRangeOfGates) {
  Random random(14);
  for (const Activation activation :
       {Activation::kSilu, Activation::kSigmoid, Activation::kSoftplus}) {
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
            const double factor = activation == Activation::kSilu      ? g * sigmoid
                                  : activation == Activation::kSigmoid ? sigmoid
                                  : g > 0.0 ? g + std::log1p(std::exp(-g))
                                            : std::log1p(std::exp(g));
            tolerance.push_back(static_cast<float>(
                8.0 * kRounding * std::abs(factor * x[static_cast<size_t>(i)]) + 1e-36));
          }
          compare_with_reference(
              {"mul_activated", formatted("{}x{} gate {}", rows, cols, gate_cols), cols, tolerance},
              [&](Session& s) {
                const Tensor out = s.floats({rows, cols}, x);
                s.encoder().run(
                    ops::MulActivated{out, out, s.floats({rows, gate_cols}, gate), activation});
                return s.read(out);
              });
        }
      }
    }
  }
}

TEST(MulActivated, KnowsGelu) {
  Random random(16);
  const std::vector<float> x = random.floats(3 * 50);
  const std::vector<float> gate = random.floats(3 * 50, -8.0f, 8.0f);
  std::vector<float> tolerance;
  for (size_t i = 0; i < x.size(); ++i) {
    const GluOptions gelu{.activation = Activation::kGeluTanh};
    tolerance.push_back(gated_unit_tolerance(gate[i], x[i], gelu));
  }
  compare_with_reference({"mul_activated", "gelu 3x50", 50, tolerance}, [&](Session& s) {
    const Tensor out = s.zeros({3, 50});
    s.encoder().run(ops::MulActivated{out, s.floats({3, 50}, x), s.floats({3, 50}, gate),
                                      Activation::kGeluTanh});
    return s.read(out);
  });
}

TEST(MulActivated, KnowsGeluByTheNormalDistribution) {
  Random random(18);
  const std::vector<float> x = random.floats(3 * 50);
  std::vector<float> gate = random.floats(3 * 50, -8.0f, 8.0f);
  gate.back() = 1e30f;
  gate.front() = -1e30f;
  std::vector<float> tolerance;
  for (size_t i = 0; i < x.size(); ++i) {
    // The polynomial's own error, and roundings of the result.
    const double share = 1e-7 * std::min(std::abs(gate[i]), 30.0f);
    const double size = 8.0 * kRounding * std::max(gate[i], 0.0f);
    tolerance.push_back(static_cast<float>((share + size) * std::abs(x[i])));
  }
  compare_with_reference({"mul_activated", "exact gelu 3x50", 50, tolerance}, [&](Session& s) {
    const Tensor out = s.zeros({3, 50});
    s.encoder().run(
        ops::MulActivated{out, s.floats({3, 50}, x), s.floats({3, 50}, gate), Activation::kGelu});
    return s.read(out);
  });
}

TEST(Glu, MatchesTheReferenceForEveryUnit) {
  Random random(15);
  const std::vector<GluOptions> units = {
      {},
      {.activation = Activation::kGeluTanh},
      {.alpha = 1.702f, .limit = 7.0f, .up_offset = 1.0f},
      {.limit = 2.0f},
      {.activation = Activation::kCappedSilu, .limit = 2.0f},
      {.activation = Activation::kSoftCapped, .alpha = 25.0f, .limit = 4.0f}};
  for (const GluOptions& unit : units) {
    for (const int64_t cols : kWidths) {
      const std::vector<float> gate = random.floats(3 * cols, -12.0f, 12.0f);
      const std::vector<float> up = random.floats(3 * cols, -12.0f, 12.0f);
      std::vector<float> tolerance;
      for (size_t i = 0; i < gate.size(); ++i) {
        tolerance.push_back(gated_unit_tolerance(gate[i], up[i], unit));
      }
      const std::string label = formatted("3x{}, activation {}, alpha {}", cols,
                                          static_cast<int>(unit.activation), unit.alpha);
      for (const bool in_place : {false, true}) {
        compare_with_reference({"glu", label, cols, tolerance}, [&](Session& s) {
          const Tensor gates = s.floats({3, cols}, gate);
          const Tensor out = in_place ? gates : s.zeros({3, cols});
          s.encoder().run(ops::Glu{out, gates, s.floats({3, cols}, up), unit});
          return s.read(out);
        });
      }
    }
  }
}

TEST(RmsNorm, MayHaveNoWeight) {
  Random random(17);
  for (const int64_t cols : kWidths) {
    const std::vector<float> x = random.floats(5 * cols, 1.0f, 3.0f);
    const auto root = static_cast<float>(std::sqrt(static_cast<double>(cols)));
    const std::vector<float> tolerance(x.size(), kRounding * (6.0f + root) * 3.0f);
    compare_with_reference(
        {"rms_norm", formatted("5x{}, no weight", cols), cols, tolerance}, [&](Session& s) {
          const Tensor out = s.zeros({5, cols});
          s.encoder().run(ops::RmsNorm{out, s.floats({5, cols}, x), Tensor{}, 1e-6f});
          return s.read(out);
        });
  }
}

TEST(AddBias, IsExact) {
  Random random(18);
  for (const int64_t cols : kWidths) {
    for (const int64_t rows : kRows) {
      const std::vector<float> x = random.floats(rows * cols);
      const std::vector<float> bias = random.floats(cols);
      const std::vector<float> exact(x.size(), 0.0f);
      compare_with_reference({"add_bias", formatted("{}x{}", rows, cols), cols, exact},
                             [&](Session& s) {
                               const Tensor out = s.floats({rows, cols}, x);
                               s.encoder().run(ops::AddBias{out, s.floats({cols}, bias)});
                               return s.read(out);
                             });
    }
  }
}

TEST(Scale, IsExactOnStridedRowsAndInPlace) {
  Random random(19);
  const std::vector<float> x = random.floats(3 * 4 * 70);
  const std::vector<float> exact(x.size(), 0.0f);
  compare_with_reference({"scale", "in place", 70, exact}, [&](Session& s) {
    const Tensor all = s.floats({3, 4, 70}, x);
    const Tensor part = all.slice(2, 3, 50);
    s.encoder().run(ops::Scale{part, part, 0.37f});
    return s.read(all);
  });
  const std::vector<float> part_exact(3 * 4 * 33, 0.0f);
  compare_with_reference({"scale", "out of place", 33, part_exact}, [&](Session& s) {
    const Tensor out = s.zeros({3, 4, 33});
    s.encoder().run(ops::Scale{out, s.floats({3, 4, 70}, x).slice(2, 1, 33), -2.5f});
    return s.read(out);
  });
}

TEST(SoftCap, MatchesTheReferenceOverTheWholeRange) {
  Random random(52);
  for (const float cap : {30.0f, 50.0f, 0.5f}) {
    for (const int64_t cols : {1, 7, 33, 100, 8192, 20001}) {
      std::vector<float> x = random.floats(2 * cols, -4.0f * cap, 4.0f * cap);
      x[0] = 1e30f;
      // Roundings of 1 in the quotient, which are absolute in units of the cap.
      const std::vector<float> tolerance(x.size(), kRounding * 8.0f * cap);
      compare_with_reference({"soft_cap", formatted("2x{}, cap {}", cols, cap), cols, tolerance},
                             [&](Session& s) {
                               const Tensor out = s.floats({2, cols}, x);
                               s.encoder().run(ops::SoftCap{out, cap});
                               return s.read(out);
                             });
    }
  }
}

// No tolerance: what a row holds is the same on all devices.
TEST(RoundBlocks, IsTheReferencesToTheLastBit) {
  Random random(97);
  for (const BlockRounding to :
       {BlockRounding::kE4m3, BlockRounding::kE2m1, BlockRounding::kE2m1E4m3}) {
    for (const int64_t cols : {32, 96, 512}) {
      std::vector<float> x = random.floats(2 * 3 * cols, -4.0f, 4.0f);
      // Blocks of every size, of zeros, at borders of a format and beyond what it holds.
      for (size_t i = 0; i < x.size(); ++i) {
        x[i] = std::ldexp(x[i], static_cast<int>(i / 16 % 41) * 3 - 60);
      }
      std::fill_n(x.begin(), 16, 0.0f);
      for (size_t i = 16; i < 32; ++i) x[i] = static_cast<float>(i - 16) * 0.25f + 2.0f;
      x[40] = 1e38f;
      const std::vector<float> exact(x.size(), 0.0f);
      compare_with_reference({"round_blocks", formatted("{} columns", cols), cols, exact},
                             [&](Session& s) {
                               const Tensor all = s.floats({2, 3, cols}, x);
                               s.encoder().run(ops::RoundBlocks{all.slice(0, 0, 1), to});
                               s.encoder().run(ops::RoundBlocks{all.slice(0, 1, 1), to});
                               return s.read(all);
                             });
    }
  }
}

TEST(RoundBlocks, KeepsWhatTheFormatHolds) {
  // 6 and 448 are the largest numbers, so scales are 1 where a block has them.
  std::vector<float> x(32, 0.0f);
  x[0] = 6.0f;
  for (const auto& [number, rounded] : {std::pair{0.2f, 0.0f},
                                        {0.25f, 0.0f},
                                        {0.3f, 0.5f},
                                        {0.75f, 1.0f},
                                        {1.25f, 1.0f},
                                        {1.75f, 2.0f},
                                        {2.5f, 2.0f},
                                        {3.5f, 4.0f},
                                        {5.0f, 4.0f},
                                        {5.1f, 6.0f}}) {
    x[1] = number;
    x[2] = -number;
    for (const BlockRounding to : {BlockRounding::kE2m1, BlockRounding::kE2m1E4m3}) {
      Session s(reference());
      const Tensor row = s.floats({1, 32}, x);
      s.encoder().run(ops::RoundBlocks{row, to});
      EXPECT_EQ(s.read(row)[1], rounded) << number;
      EXPECT_EQ(s.read(row)[2], -rounded) << number;
    }
  }
  x[0] = 448.0f;
  for (const auto& [number, rounded] : {std::pair{1.0625f, 1.0f},
                                        {1.1875f, 1.25f},
                                        {416.0f, 416.0f},
                                        {433.0f, 448.0f},
                                        {0.0009f, 0.0f},
                                        {0.001f, 0.001953125f}}) {
    x[1] = number;
    Session s(reference());
    const Tensor row = s.floats({1, 32}, x);
    s.encoder().run(ops::RoundBlocks{row, BlockRounding::kE4m3});
    EXPECT_EQ(s.read(row)[1], rounded) << number;
  }
}

}  // namespace
}  // namespace moeflux::conformance
