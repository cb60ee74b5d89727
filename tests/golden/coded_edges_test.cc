// Every code of a byte on every kind of device, as a number and as a scale: the largest, the ones
// below the normal ones, and those that are no numbers.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "quant/format_traits.h"
#include "quant/formats/tensor_formats.h"
#include "tests/support/device_session.h"
#include "tests/support/run_model.h"
#include "tests/support/stored_matrix.h"

namespace moeflux::testing {
namespace {

constexpr int64_t kBytes = 256;

struct EdgeCase {
  std::string name;
  QuantFormat format;
  int64_t cols;
  bool edge_is_scale;  // of all groups of a row
};

std::vector<EdgeCase> edge_cases() {
  return {{"fp8_numbers", fp8_of(DType::kF32, 1, 0), 131, false},
          {"mxfp8_numbers", fp8_of(DType::kF8E8M0, 1, 32), 160, false},
          {"mxfp8_scales", fp8_of(DType::kF8E8M0, 1, 32), 160, true},
          {"mxfp4_scales", QuantFormat::of(mxfp4_format), 160, true},
          {"nvfp4_scales", nvfp4_of(OuterScale::kNone), 160, true}};
}

/// Row r holds the byte r: as the number in `column`, beside zeros, or as its scales over a one
/// in `column`.
struct EdgeMatrix {
  EdgeMatrix(const EdgeCase& of, int64_t column) : layout(lay_out(of.format, kBytes, of.cols)) {
    bytes.resize(place_parts(layout, 0, 64));
    const Parts<std::span<std::byte>> parts = layout.bytes_in(bytes.data());
    const bool is_fp8 = layout.parts.codes.dtype == DType::kF8E4M3;
    const auto groups = static_cast<int64_t>(layout.parts.scales.shape[1]);
    for (int64_t r = 0; r < kBytes; ++r) {
      const auto edge = static_cast<std::byte>(r);
      for (int64_t g = 0; g < groups; ++g) put_scale(parts, r * groups + g, of, edge);
      if (is_fp8) {
        const auto one = static_cast<std::byte>(0x38);
        parts.codes[static_cast<size_t>(r * of.cols + column)] = of.edge_is_scale ? one : edge;
      } else {
        const auto one = static_cast<std::byte>(column % 2 == 0 ? 0x02 : 0x20);
        parts.codes[static_cast<size_t>((r * of.cols + column) / 2)] = one;
      }
    }
  }
  void put_scale(const Parts<std::span<std::byte>>& parts, int64_t at, const EdgeCase& of,
                 std::byte edge) const {
    const DType dtype = layout.parts.scales.dtype;
    if (dtype == DType::kF32) {
      const float one = 1.0f;
      std::memcpy(&parts.scales[static_cast<size_t>(at) * sizeof(one)], &one, sizeof(one));
    } else {
      const auto one = static_cast<std::byte>(dtype == DType::kF8E4M3 ? 0x38 : 127);
      parts.scales[static_cast<size_t>(at)] = of.edge_is_scale ? edge : one;
    }
  }

  Weight layout;
  std::vector<std::byte> bytes;
};

bool is_same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

class CodedEdges : public ::testing::TestWithParam<EdgeCase> {
 protected:
  /// The number in `column` of each row, by the definition.
  std::vector<float> meant(const EdgeMatrix& m, int64_t column) {
    const auto device = make_test_device({.device = "reference"});
    std::vector<std::unique_ptr<Buffer>> buffers;
    const Weight host = put_on(m, *device, buffers);
    std::vector<float> numbers;
    std::vector<float> row(static_cast<size_t>(host.cols));
    for (int64_t r = 0; r < kBytes; ++r) {
      decode_row(host, r, row);
      numbers.push_back(row[static_cast<size_t>(column)]);
    }
    return numbers;
  }
};

TEST_P(CodedEdges, EmbeddingsAreTheDefinitionBitForBit) {
  const int64_t cols = GetParam().cols;
  const EdgeMatrix m(GetParam(), 3);
  const std::vector<float> expected = meant(m, 3);
  std::vector<int32_t> ids(kBytes);
  for (size_t r = 0; r < ids.size(); ++r) ids[r] = static_cast<int32_t>(r);
  for (const char* name : kCodedDevices) {
    const auto device = make_test_device({.device = name});
    std::vector<std::unique_ptr<Buffer>> buffers;
    DeviceSession s(*device);
    const Tensor out = s.zeros({kBytes, cols});
    s.encoder().run(ops::Embed{out, put_on(m, *device, buffers), s.ints({kBytes}, ids)});
    const std::vector<float> rows = s.read(out);
    for (int64_t r = 0; r < kBytes; ++r) {
      const auto i = static_cast<size_t>(r);
      EXPECT_TRUE(is_same(rows[static_cast<size_t>(r * cols + 3)], expected[i]))
          << name << ", byte " << r << ": " << rows[i * static_cast<size_t>(cols) + 3] << " is not "
          << expected[i];
    }
  }
}

// One column is among whole vectors, the other the last; the sum of one number and zeros is exact.
TEST_P(CodedEdges, ProductsAreTheNumbers) {
  const int64_t cols = GetParam().cols;
  const std::vector<float> ones(static_cast<size_t>(3 * cols), 1.0f);
  for (const int64_t column : {int64_t{3}, cols - 1}) {
    const EdgeMatrix m(GetParam(), column);
    const std::vector<float> expected = meant(m, column);
    for (const char* name : kCodedDevices) {
      const auto device = make_test_device({.device = name});
      std::vector<std::unique_ptr<Buffer>> buffers;
      DeviceSession s(*device);
      const Weight w = put_on(m, *device, buffers);
      for (const int64_t n : {1, 3}) {
        const Tensor out = s.zeros({n, kBytes});
        const auto tokens = std::span(ones).first(static_cast<size_t>(n * cols));
        s.encoder().run(ops::Linear{out, s.floats({n, cols}, tokens), w});
        const std::vector<float> products = s.read(out);
        for (size_t r = 0; r < kBytes; ++r) {
          // Kernels multiply scales by 256: powers from 2^120 on are no weights of any model.
          if (GetParam().edge_is_scale && std::abs(expected[r]) >= 0x1p120f) continue;
          EXPECT_EQ(std::isnan(products[r]), std::isnan(expected[r])) << name << ", byte " << r;
          if (std::isnan(expected[r])) continue;
          EXPECT_EQ(products[r], expected[r]) << name << ", byte " << r << " in " << column;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CodedEdges, ::testing::ValuesIn(edge_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace moeflux::testing
