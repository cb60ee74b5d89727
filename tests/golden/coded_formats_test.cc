// Formats without kernels of their own: every product on every kind of device against the
// definition, over matrices of random codes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/format.h"
#include "quant/format_traits.h"
#include "quant/formats/tensor_formats.h"
#include "tests/support/device_session.h"
#include "tests/support/run_model.h"
#include "tests/support/stored_matrix.h"

namespace moeflux::testing {
namespace {

/// Any codes but NaN, and scales near 1.
void fill_part(std::span<std::byte> bytes, DType dtype, bool is_scale, std::mt19937& random) {
  const size_t size = static_cast<size_t>(dtype_bits(dtype)) / 8;
  for (size_t at = 0; at < bytes.size(); at += size) {
    const auto number = static_cast<uint8_t>(random() & 255u);
    const float scale = 0.5f + static_cast<float>(number) / 256.0f;
    if (dtype == DType::kF32) {
      std::memcpy(&bytes[at], &scale, size);
    } else if (dtype == DType::kF16) {
      const F16 half = to_f16(scale);
      std::memcpy(&bytes[at], &half, size);
    } else if (dtype == DType::kBf16) {
      const Bf16 half = to_bf16(scale);
      std::memcpy(&bytes[at], &half, size);
    } else if (dtype == DType::kF8E4M3) {
      const bool is_nan = (number & 0x7fu) == 0x7fu;
      bytes[at] = static_cast<std::byte>(is_nan ? 0x7eu : is_scale ? 0x30u + number % 16 : number);
    } else if (is_scale) {
      bytes[at] = static_cast<std::byte>(122 + number % 9);
    } else {
      for (size_t i = 0; i < size; ++i) bytes[at + i] = static_cast<std::byte>(random() & 255u);
    }
  }
}

struct CodedMatrix {
  CodedMatrix(const QuantFormat& format, int64_t rows, int64_t cols, uint32_t seed)
      : layout(lay_out(format, rows, cols)) {
    std::mt19937 random(seed);
    bytes.resize(place_parts(layout, 0, 64));
    const Parts<std::span<std::byte>> parts = layout.bytes_in(bytes.data());
    for (const PartRole role : kPartRoles) {
      if (!layout.has(role)) continue;
      const bool is_scale = role == PartRole::kScales || role == PartRole::kOuterScale;
      fill_part(parts[role], layout.parts[role].dtype, is_scale, random);
    }
    for (size_t c = 0; c < parts.column_map.size() / 4; ++c) {
      const auto groups = static_cast<uint32_t>(layout.parts.scales.shape[1]);
      const uint32_t group = static_cast<uint32_t>(random()) % (groups + 1);  // one too many
      std::memcpy(&parts.column_map[4 * c], &group, sizeof(group));
    }
  }
  /// Largest |w| a row could have: what products' errors are measured by.
  float magnitude(const Weight& host) const {
    float most = 0.0f;
    std::vector<float> row(static_cast<size_t>(host.cols));
    for (int64_t r = 0; r < host.rows; ++r) {
      decode_row(host, r, row);
      for (const float value : row) most = std::max(most, std::abs(value));
    }
    return most;
  }

  Weight layout;
  std::vector<std::byte> bytes;
};

struct CodedCase {
  std::string name;
  QuantFormat format;
  int64_t cols;  // an awkward number of them
};

std::vector<CodedCase> coded_cases() {
  return {{"mxfp4", QuantFormat::of(mxfp4_format), 160},
          {"nvfp4", nvfp4_of(OuterScale::kNone), 160},
          {"nvfp4_times", nvfp4_of(OuterScale::kFactor), 96},
          {"nvfp4_divided", nvfp4_of(OuterScale::kDivisor), 96},
          {"fp8_blocks", fp8_of(DType::kF32, 128, 128), 300},
          {"fp8_blocks_bf16", fp8_of(DType::kBf16, 128, 128), 160},
          {"fp8_blocks_f16", fp8_of(DType::kF16, 16, 32), 83},
          {"fp8_blocks_ue8m0", fp8_of(DType::kF8E8M0, 128, 128), 160},
          {"mxfp8", fp8_of(DType::kF8E8M0, 1, 32), 160},
          {"fp8_channel", fp8_of(DType::kBf16, 1, 0), 67},
          {"fp8_tensor", fp8_of(DType::kF32, 0, 0), 160},
          {"grouped_int4", integers_of(grouped_int_format, 4, 24, DType::kF32), 160},
          {"grouped_int8", integers_of(grouped_int_format, 8, 0, DType::kF32), 168}};
}

class CodedFormats : public ::testing::TestWithParam<CodedCase> {};

// A number of tokens on every device, and each alone: near the definition, and the same bits.
TEST_P(CodedFormats, ProductsAgreeWithTheDefinitionWhateverTheCompany) {
  const int64_t cols = GetParam().cols;
  const CodedMatrix m(GetParam().format, 37, cols, 2);
  for (const char* name : kCodedDevices) {
    const auto device = make_test_device({.device = name});
    const auto reference = make_test_device({.device = "reference"});
    std::vector<std::unique_ptr<Buffer>> buffers;
    DeviceSession s(*device);
    DeviceSession expected_session(*reference);
    const Weight w = put_on(m, *device, buffers);
    const Weight same = put_on(m, *reference, buffers);
    const float tolerance = 1e-6f * m.magnitude(same) * static_cast<float>(cols);
    const std::vector<float> x = random_floats(9 * cols, 3);
    for (const int64_t n : {1, 3, 9}) {
      const std::span<const float> tokens = std::span(x).first(static_cast<size_t>(n * cols));
      const auto product = [&](DeviceSession& session, const Weight& weight) {
        const Tensor out = session.zeros({n, 37});
        session.encoder().run(ops::Linear{out, session.floats({n, cols}, tokens), weight});
        return session.read(out);
      };
      const std::vector<float> together = product(s, w);
      expect_near(together, product(expected_session, same), tolerance, name);
      for (int64_t t = 0; t < n; ++t) {
        const Tensor out = s.zeros({1, 37});
        const auto begin = static_cast<size_t>(t * cols);
        s.encoder().run(ops::Linear{
            out, s.floats({1, cols}, tokens.subspan(begin, static_cast<size_t>(cols))), w});
        const std::vector<float> alone = s.read(out);
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + t * 37))
            << name << ", token " << t << " of " << n;
      }
    }
  }
}

TEST_P(CodedFormats, EmbeddingsAreTheDefinitionBitForBit) {
  const int64_t cols = GetParam().cols;
  const CodedMatrix m(GetParam().format, 139, cols, 4);
  for (const char* name : kCodedDevices) {
    const auto device = make_test_device({.device = name});
    const auto reference = make_test_device({.device = "reference"});
    std::vector<std::unique_ptr<Buffer>> buffers;
    DeviceSession s(*device);
    const Weight w = put_on(m, *device, buffers);
    const Weight host = put_on(m, *reference, buffers);
    const std::vector<int32_t> ids = {138, 0, 5};
    const Tensor out = s.zeros({3, cols});
    s.encoder().run(ops::Embed{out, w, s.ints({3}, ids)});
    const std::vector<float> rows = s.read(out);
    std::vector<float> expected(static_cast<size_t>(cols));
    for (size_t i = 0; i < ids.size(); ++i) {
      decode_row(host, ids[i], expected);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), rows.data() + i * expected.size()))
          << name << ", row " << ids[i];
    }
  }
}

TEST_P(CodedFormats, ProductsPerHeadAgreeWithTheDefinition) {
  const int64_t cols = GetParam().cols;
  const CodedMatrix m(GetParam().format, 4 * 40, cols, 5);
  const HeadRows rows{.head_stride = 40, .row_begin = 8, .rows_per_head = 24};
  const std::vector<float> x = random_floats(5 * 4 * cols, 6);
  const std::vector<float> y = random_floats(5 * 4 * 24, 7);
  float tolerance = 0.0f;
  const auto run = [&](const char* name) {
    const auto device = make_test_device({.device = name});
    std::vector<std::unique_ptr<Buffer>> buffers;
    DeviceSession s(*device);
    const Weight w = put_on(m, *device, buffers);
    if (tolerance == 0.0f) tolerance = 1e-6f * m.magnitude(w) * static_cast<float>(cols);
    const Tensor out = s.zeros({5, 4, 24});
    s.encoder().run(ops::HeadLinear{out, s.floats({5, 4, cols}, x), w, rows});
    std::vector<float> results = s.read(out);
    const Tensor transposed = s.zeros({5, 4, cols});
    s.encoder().run(ops::HeadLinearTransposed{transposed, s.floats({5, 4, 24}, y), w, rows});
    const std::vector<float> back = s.read(transposed);
    results.insert(results.end(), back.begin(), back.end());
    return results;
  };
  const std::vector<float> expected = run("reference");
  for (const char* name : kCodedDevices) expect_near(run(name), expected, tolerance, name);
}

INSTANTIATE_TEST_SUITE_P(All, CodedFormats, ::testing::ValuesIn(coded_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(CodedFormat, FieldsThatDoNotGoTogetherAreRefused) {
  EXPECT_TRUE(is_valid(fp8_of(DType::kF32, 128, 128), 300));
  EXPECT_FALSE(is_valid(fp8_of(DType::kF64, 128, 128), 300));
  EXPECT_FALSE(is_valid(fp8_of(DType::kI32, 128, 128), 300));
  EXPECT_FALSE(is_valid(fp8_of(DType::kF32, 100, 128), 300));
  EXPECT_FALSE(is_valid(fp8_of(DType::kF32, 128, -128), 300));
  EXPECT_FALSE(is_valid(fp8_of(DType::kF32, 128, 8192), 300));
  QuantFormat odd = fp8_of(DType::kF32, 128, 128);
  odd.variant = 1;
  EXPECT_FALSE(is_valid(odd, 300));
  EXPECT_TRUE(is_valid(nvfp4_of(OuterScale::kNone), 96));
  EXPECT_FALSE(is_valid(nvfp4_of(OuterScale::kNone), 48));
  odd = nvfp4_of(OuterScale::kNone);
  odd.variant = 3;
  EXPECT_FALSE(is_valid(odd, 96));
}

}  // namespace
}  // namespace moeflux::testing
