// GGML's block types on every kind of device: numbers bit for bit, products near the definition's
// and the same bits whatever the company.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/device_session.h"
#include "tests/support/random_blocks.h"
#include "tests/support/run_model.h"
#include "tests/support/stored_matrix.h"

namespace moeflux::testing {
namespace {

const char* const kDevices[] = {"cpu", "emulator", "emulator with matrix units"};

// Rows begin at any address: blocks of many types have odd sizes.
TEST(GgmlFormats, EmbeddingsAreTheDefinitionBitForBit) {
  const auto reference = make_test_device({.device = "reference"});
  for (const GgmlType& type : block_types()) {
    for (const bool outer : {false, true}) {
      const BlockMatrix m(type, 5, 512, 4, outer, 3);
      std::vector<std::unique_ptr<Buffer>> host_buffers;
      const Weight host = put_on(m, *reference, host_buffers);
      for (const char* name : kDevices) {
        const auto device = make_test_device({.device = name});
        std::vector<std::unique_ptr<Buffer>> buffers;
        DeviceSession s(*device);
        const Tensor out = s.zeros({3, 512});
        s.encoder().run(
            ops::Embed{out, put_on(m, *device, buffers), s.ints({3}, std::vector{4, 0, 3})});
        const std::vector<float> rows = s.read(out);
        std::vector<float> expected(512);
        for (const int row : {4, 0, 3}) {
          decode_row(host, row, expected);
          const size_t at = row == 4 ? 0 : row == 0 ? 512 : 1024;
          for (size_t c = 0; c < 512; ++c) {
            ASSERT_EQ(std::bit_cast<uint32_t>(rows[at + c]), std::bit_cast<uint32_t>(expected[c]))
                << name << ", " << type.name << ", row " << row << ", number " << c;
          }
        }
      }
    }
  }
}

TEST(GgmlFormats, ProductsAgreeWithTheDefinitionWhateverTheCompany) {
  const auto reference = make_test_device({.device = "reference"});
  for (const GgmlType& type : block_types()) {
    const BlockMatrix m(type, 19, 256, 2, type.name == "NVFP4");
    const std::vector<float> x = random_floats(5 * 256, 3);
    const auto product = [&](Device& device, int64_t begin, int64_t count) {
      std::vector<std::unique_ptr<Buffer>> buffers;
      DeviceSession s(device);
      const Weight w = put_on(m, device, buffers);
      const Tensor out = s.zeros({count, 19});
      s.encoder().run(ops::Linear{
          out,
          s.floats({count, 256}, std::span(x).subspan(static_cast<size_t>(begin * 256),
                                                      static_cast<size_t>(count * 256))),
          w});
      return s.read(out);
    };
    const std::vector<float> expected = product(*reference, 0, 5);
    for (const char* name : kDevices) {
      const std::string what = std::string(name) + ", " + std::string(type.name);
      const auto device = make_test_device({.device = name, .precision = Precision::kF32});
      const std::vector<float> together = product(*device, 0, 5);
      expect_near(together, expected, 5e-3f, what);
      for (const int64_t t : {0, 4}) {
        const std::vector<float> alone = product(*device, t, 1);
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + t * 19))
            << what << ", token " << t;
      }
    }
  }
}

TEST(GgmlFormats, ProductsPerHeadAgreeWithTheDefinition) {
  const HeadRows rows{.head_stride = 40, .row_begin = 8, .rows_per_head = 24};
  const std::vector<float> x = random_floats(3 * 2 * 256, 6);
  const std::vector<float> y = random_floats(3 * 2 * 24, 7);
  for (const GgmlType& type : block_types()) {
    const BlockMatrix m(type, 80, 256, 5);
    const auto run = [&](const char* name) {
      const auto device = make_test_device({.device = name, .precision = Precision::kF32});
      std::vector<std::unique_ptr<Buffer>> buffers;
      DeviceSession s(*device);
      const Weight w = put_on(m, *device, buffers);
      const Tensor out = s.zeros({3, 2, 24});
      s.encoder().run(ops::HeadLinear{out, s.floats({3, 2, 256}, x), w, rows});
      std::vector<float> results = s.read(out);
      const Tensor transposed = s.zeros({3, 2, 256});
      s.encoder().run(ops::HeadLinearTransposed{transposed, s.floats({3, 2, 24}, y), w, rows});
      const std::vector<float> back = s.read(transposed);
      results.insert(results.end(), back.begin(), back.end());
      return results;
    };
    const std::vector<float> expected = run("reference");
    for (const char* name : {"cpu", "emulator"}) {
      expect_near(run(name), expected, 5e-3f, std::string(name) + ", " + std::string(type.name));
    }
  }
}

}  // namespace
}  // namespace moeflux::testing
