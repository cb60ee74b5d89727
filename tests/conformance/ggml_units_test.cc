// Products of GGML's types on matrix units: against the numbers that their blocks stand for, and
// the same bits for a token alone as among others, wherever rows begin and however much memory
// there is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/emulator/emulator.h"
#include "backend/gpu/gpu_device.h"
#include "backend/gpu/kernels/coded_list.h"
#include "backend/gpu/launch/mma_plans.h"
#include "base/format.h"
#include "tests/conformance/support.h"
#include "tests/support/random_blocks.h"
#include "tests/support/stored_matrix.h"

namespace moeflux::conformance {
namespace {

using testing::BlockMatrix;

std::vector<float> product(Device& device, const BlockMatrix& m, std::span<const float> x) {
  Session s(device);
  std::vector<std::unique_ptr<Buffer>> buffers;
  const Weight w = testing::put_on(m, device, buffers);
  const int64_t n = static_cast<int64_t>(x.size()) / w.cols;
  const Tensor out = s.zeros({n, w.rows});
  s.encoder().run(ops::Linear{out, s.floats({n, w.cols}, x), w});
  return s.read(out);
}

/// Rows as their definition decodes them.
std::vector<float> decoded(const BlockMatrix& m) {
  std::vector<std::unique_ptr<Buffer>> buffers;
  const Weight w = testing::put_on(m, reference(), buffers);
  std::vector<float> rows(static_cast<size_t>(w.rows * w.cols));
  for (int64_t r = 0; r < w.rows; ++r) {
    decode_row(
        w, r,
        std::span(rows).subspan(static_cast<size_t>(r * w.cols), static_cast<size_t>(w.cols)));
  }
  return rows;
}

/// Activations become integers of at least 14 bits and a sign, of one factor for 64 columns; at
/// most half of one is lost. Codes are counted from zero: each of a block's few sums in f32 loses
/// 2^-24 of up to four times the block's largest number, code by code.
float tolerance_of(std::span<const float> w, std::span<const float> x) {
  double lost = 0.0;
  for (size_t begin = 0; begin < x.size(); begin += 64) {
    float most = 0.0f;
    float widest = 0.0f;
    double sum = 0.0;
    for (size_t i = begin; i < begin + 64; ++i) {
      most = std::max(most, std::abs(x[i]));
      widest = std::max(widest, std::abs(w[i]));
      sum += std::abs(w[i]);
    }
    lost += 0x1p-15 * 128.0 / 127.0 * most * sum + 0x1p-22 * 64.0 * 4.0 * most * widest;
  }
  return static_cast<float>(lost) + dot_tolerance(w, x);
}

void expect_products(const std::string& what, const BlockMatrix& m, std::span<const float> x,
                     std::span<const float> got) {
  const int64_t rows = m.layout.rows;
  const int64_t cols = m.layout.cols;
  const std::vector<float> numbers = decoded(m);
  for (size_t t = 0; t * static_cast<size_t>(cols) < x.size(); ++t) {
    const auto own = x.subspan(t * static_cast<size_t>(cols), static_cast<size_t>(cols));
    for (int64_t r = 0; r < rows; ++r) {
      const std::span<const float> w = row_of(numbers, r, cols);
      double expected = 0.0;
      for (size_t c = 0; c < own.size(); ++c) expected += static_cast<double>(w[c]) * own[c];
      ASSERT_NEAR(got[t * static_cast<size_t>(rows) + static_cast<size_t>(r)], expected,
                  tolerance_of(w, own))
          << what << ", token " << t << ", row " << r;
    }
  }
}

size_t launches_of(const NamedDevice& device, gpu::KernelId kernel) {
  if (device.launches == nullptr) return 0;
  return device.launches->of_kernel[static_cast<size_t>(kernel)];
}

/// The types that matrix units multiply.
std::vector<GgmlType> unit_types() {
  std::vector<GgmlType> types;
  for (const GgmlType& type : testing::block_types()) {
    if (gpu::fits_mma(lay_out(*type.format, 16, 256))) types.push_back(type);
  }
  return types;
}

TEST(GgmlUnits, TakeTheTypesOfTheirList) {
  size_t listed = 0;
#define MF_COUNT(name) ++listed;
  MF_GGML_MMA_TYPES(MF_COUNT)
#undef MF_COUNT
  EXPECT_EQ(unit_types().size(), listed);
  const QuantFormat q4_0 = *find_ggml_type("Q4_0")->format;
  EXPECT_FALSE(gpu::fits_mma(lay_out(q4_0, 16, 96))) << "half a block of columns";
  EXPECT_FALSE(gpu::fits_mma(lay_out(q4_0.with_outer_scale(), 16, 256)));
}

TEST(GgmlUnits, ProductsMatchTheDefinitionAndDoNotDependOnOtherTokens) {
  for (const NamedDevice* named : devices_with_units()) {
    SCOPED_TRACE(named->name);
    Device& units = *named->device;
    Random random(80);
    uint32_t seed = 0;
    for (const GgmlType& type : unit_types()) {
      // A split and more, whose last one is whole, or not; rows that fill tiles, or not.
      const int64_t block = type.block_elements;
      const int64_t least = std::max<int64_t>(block, 64);
      for (const int64_t cols : {least, block < 128 ? int64_t{1216} : int64_t{1280}}) {
        const int64_t rows = cols < 512 ? 40 : 21;
        const int64_t n = cols < 512 ? 70 : 6;
        // At multiples of 32, of 16, of 2, and anywhere where blocks begin anywhere.
        const uint64_t odd = type.block_bytes % 2;
        const uint64_t begin = std::vector<uint64_t>{0, 16, 6, 34 + odd}[++seed % 4];
        const bool outer = type.name == std::string_view("NVFP4");
        const BlockMatrix m(type, rows, cols, seed, outer, begin);
        const std::vector<float> x = random.floats(n * cols, -2.0f, 2.0f);
        const std::vector<float> got = product(units, m, x);
        const std::string what = formatted("{}, {} columns from {}", type.name, cols, begin);
        expect_products(what, m, x, got);
        for (const int64_t t : {int64_t{0}, n - 1}) {
          expect_same_bits(what, row_of(got, t, rows), product(units, m, row_of(x, t, cols)));
        }
        expect_same_bits(what, std::span(got).first(static_cast<size_t>(3 * rows)),
                         product(units, m, std::span(x).first(static_cast<size_t>(3 * cols))));
      }
    }
  }
}

// A launch of one type may have a kernel that knows it, one of several has none.
TEST(GgmlUnits, SingleTokensHaveTheSameBitsBesideAnotherType) {
  constexpr int64_t kCols = 768;
  Random random(83);
  const std::vector<float> x = random.floats(kCols, -2.0f, 2.0f);
  const BlockMatrix other(*find_ggml_type("Q5_0"), 19, kCols, 7, false, 0);
  for (const NamedDevice* named : devices_with_units()) {
    for (const GgmlType& type : unit_types()) {
      const BlockMatrix m(type, 37, kCols, 6, false, 0);
      Session s(*named->device);
      std::vector<std::unique_ptr<Buffer>> buffers;
      const Weight first = testing::put_on(m, *named->device, buffers);
      const Weight second = testing::put_on(other, *named->device, buffers);
      const Tensor in = s.floats({1, kCols}, x);
      const Tensor out = s.zeros({1, 37});
      s.encoder().run(ops::Linear{out, in, first});
      s.encoder().run(ops::Linear{s.zeros({1, 19}), in, second});
      const std::string what = formatted("{} on {}", type.name, named->name);
      expect_same_bits(what, product(*named->device, m, x), s.read(out));
      const gpu::OneKernels& kernels = gpu::one_kernels(gpu::mma_matrix(first).bits);
      if (!kernels.knows_type || named->launches == nullptr) continue;
      EXPECT_GT(launches_of(*named, kernels.linear), 0u) << what;
    }
  }
}

TEST(GgmlUnits, TilesOfManyTokensHaveTheBitsOfSingleOnes) {
  Random random(82);
  // One, two and four scales in 64 columns; a whole split and a part of one.
  for (const char* name : {"Q2_0", "Q4_0", "Q6_K"}) {
    for (const NamedDevice* named : devices_with_units()) {
      const BlockMatrix m(*find_ggml_type(name), 512, 768, 6, false, 0);
      const std::vector<float> x = random.floats(150 * 768, -2.0f, 2.0f);
      const std::vector<float> got = product(*named->device, m, x);
      const std::string what = formatted("{} on {}", name, named->name);
      for (const int64_t t : {0, 63, 64, 127, 128, 149}) {
        expect_same_bits(what, row_of(got, t, 512), product(*named->device, m, row_of(x, t, 768)));
      }
    }
  }
}

TEST(GgmlUnits, RowsHaveTheSameBitsWhereverTheyBegin) {
  const auto units = make_emulator_device({.seed = 7, .matrix_units = true});
  Random random(81);
  for (const char* name :
       {"Q4_K", "Q5_K", "Q6_K", "Q8_0", "MXFP4", "NVFP4", "IQ1_S", "IQ2_XS", "IQ3_S"}) {
    const GgmlType& type = *find_ggml_type(name);
    // So many that rows may begin at multiples of 16.
    const int64_t cols = type.block_bytes == 210 ? 2048 : 1536;
    const std::vector<float> x = random.floats(9 * cols, -2.0f, 2.0f);
    std::vector<float> expected;
    const uint64_t odd = type.block_bytes % 2;
    for (const uint64_t begin : {uint64_t{0}, 2 - odd, uint64_t{16}, uint64_t{30}, uint64_t{48}}) {
      const BlockMatrix m(type, 37, cols, 5, false, begin);
      const std::string what = formatted("{} from {}", name, begin);
      std::vector<float> got = product(*units, m, x);
      const std::vector<float> one = product(*units, m, row_of(x, 0, cols));
      got.insert(got.end(), one.begin(), one.end());
      if (begin == 0) expected = got;
      expect_same_bits(what, expected, got);
    }
  }
}

TEST(GgmlUnits, BlocksOfAnyBitsStayInTheirRow) {
  const auto units = make_emulator_device({.seed = 9, .matrix_units = true});
  Random random(85);
  for (const GgmlType& type : unit_types()) {
    const int64_t cols = 768;
    const BlockMatrix clean(type, 24, cols, 12);
    BlockMatrix m = clean;
    const std::span<std::byte> codes = m.layout.bytes_in(m.bytes.data()).codes;
    const size_t row_bytes = codes.size() / 24;
    std::fill_n(codes.begin() + 2 * row_bytes, row_bytes, std::byte{0xff});
    std::fill_n(codes.begin() + 9 * row_bytes, row_bytes, std::byte{0});
    for (size_t i = 0; i < 2 * row_bytes; ++i) {  // rows 17 and 18
      codes[17 * row_bytes + i] = static_cast<std::byte>(random.below(256));
    }
    // Row 20: scales that are NaN, any codes.
    for (size_t at = 20 * row_bytes; at < 21 * row_bytes;
         at += static_cast<size_t>(type.block_bytes)) {
      for (const size_t half : testing::half_places(type.name)) {
        codes[at + half] = std::byte{0x01};
        codes[at + half + 1] = std::byte{0x7e};
      }
    }
    for (const int64_t n : {1, 9}) {
      const std::vector<float> x = random.floats(n * cols, -2.0f, 2.0f);
      const std::vector<float> expected = product(*units, clean, x);
      const std::vector<float> got = product(*units, m, x);
      for (int64_t t = 0; t < n; ++t) {
        for (const int64_t r : {0, 1, 3, 8, 10, 16, 19, 21, 23}) {
          EXPECT_EQ(got[t * 24 + r], expected[t * 24 + r]) << type.name << ", row " << r;
        }
        EXPECT_FALSE(std::abs(got[t * 24 + 9]) > 0.0f) << type.name << ", a row of zero bytes";
        if (testing::half_places(type.name).empty()) continue;
        EXPECT_TRUE(std::isnan(got[t * 24 + 20])) << type.name;
      }
    }
  }
}

TEST(GgmlUnits, LessMemoryGivesTheSameBits) {
  Random random(82);
  const auto usual = make_emulator_device({.seed = 3, .matrix_units = true});
  // No room for tokens that share a read; then for half of the SIMD groups besides.
  for (const uint32_t kib : {150u, 99u}) {
    const auto small =
        make_emulator_device({.seed = 3, .matrix_units = true, .shared_bytes = kib * 1024});
    for (const char* name : {"Q4_K", "Q8_0"}) {
      const BlockMatrix m(*find_ggml_type(name), 75, 1024, 6);
      const std::vector<float> x = random.floats(7 * 1024, -2.0f, 2.0f);
      expect_same_bits(formatted("{}, {} KiB", name, kib), product(*usual, m, x),
                       product(*small, m, x));
    }
  }
}

TEST(GgmlUnits, GroupsThatStayWalkOverAllTiles) {
  for (const NamedDevice* named : devices_with_units()) {
    SCOPED_TRACE(named->name);
    Device& units = *named->device;
    Random random(83);
    struct Case {
      const char* type;
      int64_t rows;
      int64_t cols;
    };
    for (const Case& c :
         {Case{"Q4_K", 405, 1536}, Case{"Q8_0", 277, 1088}, Case{"Q6_K", 149, 4352}}) {
      const int64_t rows = named->is_slow ? c.rows : 33 * c.rows;
      const BlockMatrix m(*find_ggml_type(c.type), rows, c.cols, 8);
      const std::vector<float> x = random.floats(5 * c.cols, -2.0f, 2.0f);
      const std::vector<float> many = product(units, m, x);
      for (const size_t n : {1, 2}) {
        expect_same_bits(formatted("{}x{} of {}, {} tokens", rows, c.cols, c.type, n),
                         std::span(many).first(n * static_cast<size_t>(rows)),
                         product(units, m, std::span(x).first(n * static_cast<size_t>(c.cols))));
      }
    }
  }
}

TEST(GgmlUnits, TypesShareLaunchesWithEachOtherAndKeepTheirBits) {
  for (const NamedDevice* named : devices_with_units()) {
    SCOPED_TRACE(named->name);
    Device& units = *named->device;
    Random random(84);
    std::vector<BlockMatrix> all;
    for (const char* name : {"Q4_K", "Q6_K", "Q8_0"}) {
      all.emplace_back(*find_ggml_type(name), 33, 512, 9);
    }
    const EncodedWeight other =
        random_weight(random, QuantFormat::affine(4, 64, DType::kBf16), 20, 512);
    for (const int64_t n : {1, 6}) {
      const std::vector<float> x = random.floats(n * 512);
      Session s(units);
      std::vector<std::unique_ptr<Buffer>> buffers;
      const Tensor rows = s.floats({n, 512}, x);
      std::vector<Tensor> outs;
      std::vector<Weight> weights;
      for (const BlockMatrix& m : all) weights.push_back(testing::put_on(m, units, buffers));
      weights.push_back(s.weight(other));
      for (const Weight& w : weights) outs.push_back(s.zeros({n, w.rows}));
      // Without memory for tokens that share a read each of them has groups of its own.
      const auto launches = [&] {
        return launches_of(*named, gpu::KernelId::mma_linear_ggml_t1) +
               launches_of(*named, gpu::KernelId::mma_linear_ggml_t8) +
               launches_of(*named, gpu::KernelId::mma_linear_ggml);
      };
      const size_t before = launches();
      for (size_t i = 0; i < weights.size(); ++i)
        s.encoder().run(ops::Linear{outs[i], rows, weights[i]});
      (void)s.encoder().submit();
      if (named->launches != nullptr) {
        EXPECT_EQ(launches(), before + 1) << n << " tokens";
      }
      for (size_t i = 0; i < all.size(); ++i) {
        expect_same_bits(formatted("matrix {} of {} tokens", i, n), s.read(outs[i]),
                         product(units, all[i], x));
      }
    }
  }
}

}  // namespace
}  // namespace moeflux::conformance
