// Products on matrix units: against the reference, and the same bits for a token alone as among
// others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "backend/gpu/emulator/emulator.h"
#include "backend/gpu/gpu_device.h"
#include "backend/gpu/launch/mma_plans.h"
#include "base/format.h"
#include "quant/formats/tensor_formats.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

std::vector<float> product(Device& device, const EncodedWeight& w, std::span<const float> x,
                           int64_t n) {
  Session s(device);
  const Tensor out = s.zeros({n, w.rows});
  s.encoder().run(ops::Linear{out, s.floats({n, w.cols}, x), s.weight(w)});
  return s.read(out);
}

/// Groups as wide as blocks, and narrow ones.
std::vector<QuantFormat> wide_and_narrow() {
  return {QuantFormat::affine(4, 64, DType::kBf16),
          QuantFormat::affine(8, 64, DType::kBf16),
          QuantFormat::affine(4, 32, DType::kBf16),
          QuantFormat::affine(8, 32, DType::kF16),
          QuantFormat::affine(8, 64, DType::kF32),
          integers_of(grouped_int_format, 4, 64, DType::kF32)};
}

/// Activations become integers of at least 14 bits and a sign, of one factor for 64 columns; at
/// most half of one is lost.
float unit_tolerance(std::span<const float> w, std::span<const float> x) {
  double lost = 0.0;
  for (size_t begin = 0; begin < x.size(); begin += 64) {
    float most = 0.0f;
    double sum = 0.0;
    for (size_t i = begin; i < begin + 64; ++i) {
      most = std::max(most, std::abs(x[i]));
      sum += std::abs(w[i]);
    }
    lost += 0x1p-15 * 128.0 / 127.0 * most * sum;
  }
  return static_cast<float>(lost) + dot_tolerance(w, x);
}

TEST(MatrixUnits, TakeGroupsOf32InRowsOfWholeBlocks) {
  for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
    for (const int bits : {4, 8}) {
      const QuantFormat format = QuantFormat::affine(bits, 32, dtype);
      EXPECT_TRUE(gpu::fits_mma(lay_out(format, 16, 192))) << format.to_string();
      EXPECT_FALSE(gpu::fits_mma(lay_out(format, 16, 160))) << format.to_string();
    }
  }
}

TEST(MatrixUnits, TakeWholeNumbersWhoseGroupsLieInOrder) {
  const auto fits = [](int group, bool is_mapped) {
    QuantFormat format = integers_of(grouped_int_format, 4, group, DType::kF32);
    format.variant = is_mapped ? kColumnMap : uint8_t{0};
    return gpu::fits_mma(lay_out(format, 16, 192));
  };
  EXPECT_TRUE(fits(32, false) && fits(128, false) && fits(0, false));
  EXPECT_FALSE(fits(24, false) || fits(96, false)) << "not a power of two";
  EXPECT_FALSE(fits(32, true) || fits(0, true)) << "any column may be in any group";
}

TEST(MatrixUnits, ProductsMatchTheReferenceAndDoNotDependOnOtherTokens) {
  for (const NamedDevice* named : devices_with_units()) {
    SCOPED_TRACE(named->name);
    Device& units = *named->device;
    Random random(60);
    for (const QuantFormat& format : unit_formats()) {
      for (const int64_t cols : {128, 1024, 1152}) {
        const int64_t rows = cols == 128 ? 40 : 21;
        const int64_t n = cols == 128 ? 70 : 6;
        const EncodedWeight w = random_weight(random, format, rows, cols);
        const std::vector<float> x = random.floats(n * cols, -2.0f, 2.0f);
        const std::vector<float> expected = product(reference(), w, x, n);
        const std::vector<float> got = product(units, w, x, n);
        for (int64_t t = 0; t < n; ++t) {
          for (int64_t r = 0; r < rows; ++r) {
            const auto at = static_cast<size_t>(t * rows + r);
            EXPECT_NEAR(got[at], expected[at],
                        unit_tolerance(row_of(w.decoded, r, cols), row_of(x, t, cols)))
                << format.to_string() << ", " << cols << " columns, token " << t << ", row " << r;
          }
        }
        const std::string what = formatted("{}, {} columns", format.to_string(), cols);
        for (const int64_t t : {int64_t{0}, n - 1}) {
          expect_same_bits(what, row_of(got, t, rows), product(units, w, row_of(x, t, cols), 1));
        }
        expect_same_bits(what, std::span(got).first(static_cast<size_t>(3 * rows)),
                         product(units, w, std::span(x).first(static_cast<size_t>(3 * cols)), 3));
      }
    }
  }
}

TEST(MatrixUnits, RowsOfAnOddNumberOfBlocksMayBeginAnywhere) {
  for (const NamedDevice* named : devices_with_units()) {
    SCOPED_TRACE(named->name);
    Device& units = *named->device;
    Random random(64);
    for (const QuantFormat& format : wide_and_narrow()) {
      // More rows than a group has, the last of them alone; tokens fill a tile and begin another.
      const EncodedWeight w = random_weight(random, format, 257, 192);
      const std::vector<float> x = random.floats(72 * w.cols, -2.0f, 2.0f);
      const std::vector<float> got = product(units, w, x, 72);
      const std::string what = format.to_string();
      for (const int64_t t : {0, 63, 71}) {
        expect_same_bits(what, product(units, w, row_of(x, t, w.cols), 1), row_of(got, t, w.rows));
      }
      Session s(units);
      Weight moved = s.weight(w);
      Tensor room = s.zeros({static_cast<int64_t>(w.data.size()) + 4}, DType::kU8);
      moved.parts.codes.buffer = room.buffer;
      moved.parts.codes.offset_bytes = room.offset_bytes + 4;
      s.encoder().write(moved.parts.codes, w.data);
      const Tensor out = s.zeros({72, w.rows});
      s.encoder().run(ops::Linear{out, s.floats({72, w.cols}, x), moved});
      expect_same_bits(what + ", 4 bytes further", got, s.read(out));
    }
  }
}

TEST(MatrixUnits, TilesOfEverySizeHaveTheBitsOfTokensAlone) {
  for (const NamedDevice* named : devices_with_units()) {
    SCOPED_TRACE(named->name);
    Device& units = *named->device;
    Random random(69);
    // Rooms for two stages of columns, and for as many as any kernel has.
    const auto small =
        make_emulator_device({.seed = 3, .matrix_units = true, .shared_bytes = 80 * 1024});
    for (const QuantFormat& format : wide_and_narrow()) {
      const EncodedWeight w = random_weight(random, format, 24, 704);
      const std::vector<float> x = random.floats(64 * w.cols, -2.0f, 2.0f);
      const std::vector<float> all = product(units, w, x, 64);
      for (const int64_t n : {9, 16, 17, 32, 33, 48, 49}) {
        const std::span<const float> some = std::span(x).first(static_cast<size_t>(n * w.cols));
        const std::span<const float> expected =
            std::span(all).first(static_cast<size_t>(n * w.rows));
        const std::string what = formatted("{}, {} tokens", format.to_string(), n);
        expect_same_bits(what, expected, product(units, w, some, n));
        if (named->is_slow) {
          expect_same_bits(what + ", less memory", expected, product(*small, w, some, n));
        }
      }
      for (const int64_t t : {0, 8, 15, 16, 31, 40, 63}) {
        expect_same_bits(formatted("{}, token {}", format.to_string(), t), row_of(all, t, w.rows),
                         product(units, w, row_of(x, t, w.cols), 1));
      }
    }
  }
}

TEST(MatrixUnits, LongRowsTakeTurnsInWhateverSharedMemoryThereIs) {
  Random random(68);
  // Room for the parts of two turns, of one, and of none: ordinary products then.
  struct Case {
    uint32_t shared_bytes;
    bool same_bits;
  };
  const EncodedWeight w = random_weight(random, QuantFormat::affine(8, 64, DType::kBf16), 20, 4160);
  const std::vector<float> x = random.floats(w.cols, -2.0f, 2.0f);
  const auto usual = make_emulator_device({.seed = 3, .matrix_units = true});
  const std::vector<float> expected = product(*usual, w, x, 1);
  for (const Case& c : {Case{99 * 1024, true}, Case{64 * 1024, false}}) {
    const auto device =
        make_emulator_device({.seed = 3, .matrix_units = true, .shared_bytes = c.shared_bytes});
    const std::vector<float> got = product(*device, w, x, 1);
    if (c.same_bits) {
      expect_same_bits(formatted("{} bytes", c.shared_bytes), expected, got);
      continue;
    }
    for (int64_t r = 0; r < w.rows; ++r) {
      EXPECT_NEAR(got[static_cast<size_t>(r)], expected[static_cast<size_t>(r)],
                  unit_tolerance(row_of(w.decoded, r, w.cols), x));
    }
  }
}

TEST(MatrixUnits, GroupsThatStayWalkOverAllTiles) {
  for (const NamedDevice* named : devices_with_units()) {
    SCOPED_TRACE(named->name);
    Device& units = *named->device;
    Random random(69);
    struct Case {
      int bits;
      int group;
      int64_t rows;
      int64_t cols;
    };
    // More tiles than groups at once on 4 multiprocessors, or 132, and not as many for each: rows
    // of one split, of as many as SIMD groups take at once and of more, whose activations come
    // split by split.
    for (const Case& c : {Case{4, 64, 2900, 64}, Case{4, 64, 405, 1600}, Case{4, 64, 277, 4800},
                          Case{8, 64, 277, 1088}, Case{8, 64, 149, 4160}, Case{4, 32, 405, 1792}}) {
      const int64_t rows = named->is_slow ? c.rows : 33 * c.rows;
      const EncodedWeight w =
          random_weight(random, QuantFormat::affine(c.bits, c.group, DType::kBf16), rows, c.cols);
      const std::vector<float> x = random.floats(5 * c.cols, -2.0f, 2.0f);
      const std::vector<float> many = product(units, w, x, 5);
      for (const int64_t n : {1, 2}) {
        const auto some = static_cast<size_t>(n);
        expect_same_bits(formatted("{}x{} of {} bits in groups of {}, {} tokens", rows, c.cols,
                                   c.bits, c.group, n),
                         std::span(many).first(some * static_cast<size_t>(rows)),
                         product(units, w, std::span(x).first(some * w.cols), n));
      }
    }
  }
}

TEST(MatrixUnits, ProductsOfOneInputShareALaunchAndKeepTheirBits) {
  for (const NamedDevice* named : devices_with_units()) {
    SCOPED_TRACE(named->name);
    Device& units = *named->device;
    Random random(61);
    const std::vector<float> x = random.floats(6 * 256);
    std::vector<EncodedWeight> weights;
    for (const int64_t rows : {200, 5, 33, 16, 40}) {
      weights.push_back(
          random_weight(random, unit_formats()[static_cast<size_t>(rows % 2)], rows, 256));
    }
    for (const int64_t n : {1, 6}) {
      Session s(units);
      const std::span<const float> some(x.data(), static_cast<size_t>(n * 256));
      const Tensor in = s.floats({n, 256}, some);
      std::vector<Tensor> outs;
      for (const EncodedWeight& w : weights) outs.push_back(s.zeros({n, w.rows}));
      std::vector<Weight> views;
      for (const EncodedWeight& w : weights) views.push_back(s.weight(w));
      for (size_t i = 0; i < weights.size(); ++i)
        s.encoder().run(ops::Linear{outs[i], in, views[i]});
      for (size_t i = 0; i < weights.size(); ++i) {
        expect_same_bits(formatted("matrix {}, {} tokens", i, n),
                         product(units, weights[i], some, n), s.read(outs[i]));
      }
    }
  }
}

}  // namespace
}  // namespace moeflux::conformance
