// Products of FP8 on matrix units: against the numbers that codes and scales stand for, and the
// same bits for a token alone as among others, wherever codes begin and however much memory there
// is.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/emulator/emulator.h"
#include "backend/gpu/gpu_device.h"
#include "backend/gpu/launch/mma_plans.h"
#include "base/format.h"
#include "quant/formats/tensor_formats.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

std::vector<QuantFormat> fp8_formats() {
  return {fp8_of(DType::kF32, 128, 128), fp8_of(DType::kF8E8M0, 1, 32),
          fp8_of(DType::kBf16, 1, 0),    fp8_of(DType::kF16, 16, 32),
          fp8_of(DType::kF32, 0, 0),     fp8_of(DType::kF8E8M0, 128, 128),
          fp8_of(DType::kBf16, 1, 2048)};
}

/// `skew`: bytes by which codes begin late.
std::vector<float> fp8_product(Device& device, const EncodedWeight& w, std::span<const float> x,
                               int64_t skew = 0) {
  Session s(device);
  const int64_t n = static_cast<int64_t>(x.size()) / w.cols;
  Weight weight = s.weight(w);
  if (skew > 0) {
    const auto size = static_cast<int64_t>(w.data.size());
    weight.parts.codes =
        s.zeros({size + skew}, DType::kF8E4M3).slice(0, skew, size).reshape({w.rows, w.cols});
    s.encoder().write(weight.parts.codes, w.data);
  }
  const Tensor out = s.zeros({n, w.rows});
  s.encoder().run(ops::Linear{out, s.floats({n, w.cols}, x), weight});
  return s.read(out);
}

/// Activations become integers of 14 bits and a sign at least, of one factor for 64 columns, and
/// each of a block's sums in f32 loses 2^-24 of it.
float fp8_tolerance(std::span<const float> w, std::span<const float> x) {
  double lost = 0.0;
  for (size_t begin = 0; begin < x.size(); begin += 64) {
    float most = 0.0f;
    double sum = 0.0;
    for (size_t i = begin; i < begin + 64; ++i) {
      most = std::max(most, std::abs(x[i]));
      sum += std::abs(w[i]);
    }
    lost += (0x1p-15 * 128.0 / 127.0 + 0x1p-21) * most * sum;
  }
  return static_cast<float>(lost) + dot_tolerance(w, x);
}

void expect_fp8_products(const std::string& what, const EncodedWeight& w, std::span<const float> x,
                         std::span<const float> got) {
  Session s(reference());
  const Weight weight = s.weight(w);
  std::vector<float> numbers(static_cast<size_t>(w.cols));
  for (int64_t r = 0; r < w.rows; ++r) {
    decode_row(weight, r, numbers);
    for (size_t t = 0; t * static_cast<size_t>(w.cols) < x.size(); ++t) {
      const auto width = static_cast<size_t>(w.cols);
      const std::span<const float> own = x.subspan(t * width, width);
      double expected = 0.0;
      for (size_t c = 0; c < own.size(); ++c) expected += static_cast<double>(numbers[c]) * own[c];
      ASSERT_NEAR(got[t * static_cast<size_t>(w.rows) + static_cast<size_t>(r)], expected,
                  fp8_tolerance(numbers, own))
          << what << ", token " << t << ", row " << r;
    }
  }
}

TEST(Fp8Units, TakeRowsOfWholeBlocks) {
  for (const QuantFormat& format : fp8_formats()) {
    EXPECT_TRUE(gpu::fits_mma(lay_out(format, 16, 192))) << format.to_string();
    EXPECT_FALSE(gpu::fits_mma(lay_out(format, 16, 160))) << format.to_string();
  }
}

TEST(Fp8Units, ProductsMatchTheDefinitionAndDoNotDependOnOtherTokens) {
  for (const NamedDevice* named : devices_with_units()) {
    Device& units = *named->device;
    Random random(310);
    int64_t skew = 0;
    for (const QuantFormat& format : fp8_formats()) {
      for (const int64_t cols : {int64_t{192}, int64_t{1216}}) {
        const int64_t rows = cols < 512 ? 150 : 21;
        const int64_t n = cols < 512 ? 150 : 6;
        skew = (skew + 12) % 40;
        const EncodedWeight w = random_weight(random, format, rows, cols);
        const std::vector<float> x = random.floats(n * cols, -2.0f, 2.0f);
        const std::vector<float> got = fp8_product(units, w, x);
        const std::string what =
            formatted("{} on {}, {} columns", format.to_string(), named->name, cols);
        expect_fp8_products(what, w, x, got);
        for (const int64_t t : {int64_t{0}, n - 1}) {
          expect_same_bits(what, row_of(got, t, rows),
                           fp8_product(units, w, row_of(x, t, cols), skew));
        }
        expect_same_bits(what, std::span(got).first(static_cast<size_t>(3 * rows)),
                         fp8_product(units, w, std::span(x).first(static_cast<size_t>(3 * cols))));
        expect_same_bits(
            what, std::span(got).first(static_cast<size_t>(6 * rows)),
            fp8_product(units, w, std::span(x).first(static_cast<size_t>(6 * cols)), 4));
      }
    }
  }
}

// Each code in a row of its own among zeros: its integer has bytes of every kind.
TEST(Fp8Units, EveryCodeIsExact) {
  for (const NamedDevice* named : devices_with_units()) {
    for (const QuantFormat& format : {fp8_of(DType::kF32, 0, 0), fp8_of(DType::kF8E8M0, 1, 32)}) {
      Random random(311);
      EncodedWeight w = random_weight(random, format, 256, 64);
      std::fill(w.data.begin(), w.data.end(), std::byte{0});
      for (size_t code = 0; code < 256; ++code) {
        w.data[code * 64 + code % 64] = static_cast<std::byte>(code);
      }
      Session s(reference());
      const Weight weight = s.weight(w);
      // 127 / 128 of a power of two: integers are powers of two, too, and their factor is exact.
      const std::vector<float> ones(66 * 64, 1.0f);
      const std::vector<float> got = fp8_product(*named->device, w, ones);
      std::vector<float> numbers(64);
      for (size_t code = 0; code < 256; ++code) {
        decode_row(weight, static_cast<int64_t>(code), numbers);
        const float own = numbers[code % 64];
        for (const size_t t : {size_t{0}, size_t{65}}) {
          const float value = got[t * 256 + code];
          EXPECT_EQ(std::isnan(value), std::isnan(own)) << code;
          if (!std::isnan(own)) {
            EXPECT_NEAR(value, own, std::abs(own) * 0x1p-22f) << code;
          }
        }
      }
    }
  }
}

TEST(Fp8Units, NaNStaysInItsRow) {
  for (const NamedDevice* named : devices_with_units()) {
    for (const QuantFormat& format : fp8_formats()) {
      Random random(312);
      const EncodedWeight clean = random_weight(random, format, 40, 576);
      EncodedWeight w = clean;
      w.data[3 * 576 + 261] = std::byte{0xff};
      w.data[20 * 576 + 575] = std::byte{0x7f};
      for (const int64_t n : {1, 66}) {
        const std::vector<float> x = random.floats(n * 576);
        const std::vector<float> expected = fp8_product(*named->device, clean, x);
        const std::vector<float> got = fp8_product(*named->device, w, x);
        for (size_t i = 0; i < got.size(); ++i) {
          if (i % 40 == 3 || i % 40 == 20) {
            EXPECT_TRUE(std::isnan(got[i])) << named->name << ", " << i;
          } else {
            EXPECT_EQ(got[i], expected[i]) << named->name << ", " << i;
          }
        }
      }
    }
  }
}

TEST(Fp8Units, LessMemoryGivesTheSameBits) {
  Random random(313);
  const auto usual = make_emulator_device({.seed = 3, .matrix_units = true});
  for (const uint32_t kib : {180u, 99u}) {
    const auto small =
        make_emulator_device({.seed = 3, .matrix_units = true, .shared_bytes = kib * 1024});
    for (const QuantFormat& format : fp8_formats()) {
      const EncodedWeight w = random_weight(random, format, 75, 1024);
      const std::vector<float> x = random.floats(7 * 1024, -2.0f, 2.0f);
      expect_same_bits(formatted("{}, {} KiB", format.to_string(), kib), fp8_product(*usual, w, x),
                       fp8_product(*small, w, x));
    }
  }
}

TEST(Fp8Units, ExpertsHaveTheBitsOfSingleTokens) {
  Random random(314);
  for (const QuantFormat& format : fp8_formats()) {
    const MoeProblem p = MoeProblem::make(
        random, format, {.hidden = 576, .intermediate = 128, .experts = 3, .top_k = 2, .n = 40});
    check_token_invariance(format.to_string(), p);
  }
}

}  // namespace
}  // namespace moeflux::conformance
