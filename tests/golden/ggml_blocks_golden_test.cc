// GGML's block types against what llama.cpp's Python package decodes from the same bytes, bit for
// bit: random blocks, and scales of zero, of either sign, denormal and large.
#include <gtest/gtest.h>

#include <bit>
#include <cctype>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "quant/ggml_types.h"
#include "quant/weight.h"
#include "tests/support/golden_file.h"
#include "tests/support/host_bytes.h"

namespace moeflux::testing {
namespace {

constexpr int64_t kCols = 256;

std::string lower(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

TEST(GgmlBlocks, EveryTypeHasTheReferencesBits) {
  const auto golden = read_golden(tests_directory() + "/golden/formats/ggml_blocks.safetensors");
  int types = 0;
  for (const GgmlType& type : ggml_types()) {
    if (!type.is_readable() || type.block_elements == 1) continue;
    SCOPED_TRACE(std::string(type.name));
    ++types;
    ASSERT_TRUE(golden.contains(lower(type.name) + ".bytes"));
    const GoldenTensor& words = golden.at(lower(type.name) + ".bytes");
    const GoldenTensor& values = golden.at(lower(type.name) + ".values");
    const auto size = words.ints.size() * 4;
    ASSERT_EQ(static_cast<int64_t>(size), values.rows() * type.row_bytes(kCols));
    std::vector<std::byte> bytes(size);
    std::memcpy(bytes.data(), words.ints.data(), size);
    HostBytes buffer(std::move(bytes));
    Weight matrix = lay_out(*type.format, values.rows(), kCols);
    place_parts(matrix, 0, 1);
    const Weight weight = matrix.at(buffer, 0);
    std::vector<float> row(kCols);
    for (int64_t r = 0; r < values.rows(); ++r) {
      decode_row(weight, r, row);
      for (size_t c = 0; c < row.size(); ++c) {
        ASSERT_EQ(std::bit_cast<uint32_t>(row[c]), std::bit_cast<uint32_t>(values.row(r)[c]))
            << "row " << r << ", number " << c << ": " << row[c] << ", not " << values.row(r)[c];
      }
    }
  }
  EXPECT_EQ(types, 26);
}

}  // namespace
}  // namespace moeflux::testing
