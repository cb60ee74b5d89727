// Our quantiser against mlx.core.quantize over one matrix in every format
// (tools/oracles/quant_golden.py).
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/format.h"
#include "checkpoint/tensor_index.h"
#include "quant/quantize.h"
#include "tests/support/golden_file.h"
#include "tests/support/host_bytes.h"

namespace moeflux::testing {
namespace {

class QuantGolden : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    auto index = TensorIndex::open(tests_directory() + "/golden/quant");
    ASSERT_TRUE(index.ok()) << index.error().to_string();
    index_.emplace(std::move(index).value());
    const std::vector<std::byte> bytes = part("weights");
    rows_ = index_->find("weights")->shape[0];
    cols_ = index_->find("weights")->shape[1];
    for (int64_t i = 0; i < rows_ * cols_; ++i) {
      weights_.push_back(load_float(bytes.data(), i, DType::kF32));
    }
  }

  std::vector<std::byte> part(const std::string& name) {
    const TensorEntry* entry = index_->find(name);
    EXPECT_NE(entry, nullptr) << name;
    if (entry == nullptr) return {};
    std::vector<std::byte> bytes(entry->size_bytes);
    EXPECT_TRUE(read_tensor(*index_, *entry, bytes).ok()) << name;
    return bytes;
  }

  EncodedParts of_mlx(const QuantFormat& format) {
    const std::string dtype = QuantFormat::plain(format.dtype).to_string();
    const std::string key = formatted("{}.{}.{}.", dtype, format.bits, format.group_size);
    return {.codes = part(key + "codes"),
            .scales = part(key + "scales"),
            .offsets = part(key + "biases")};
  }

  std::vector<QuantFormat> formats() const {
    std::vector<QuantFormat> all;
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
      for (const int group : {32, 64, 128}) {
        all.push_back(QuantFormat::affine(bits, group, GetParam()));
      }
    }
    return all;
  }

  std::optional<TensorIndex> index_;
  std::vector<float> weights_;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
};

TEST_P(QuantGolden, ScalesAndBiasesAreThoseOfMlxBitForBit) {
  for (const QuantFormat& format : formats()) {
    const auto ours = quantize_affine({weights_, rows_, cols_}, format);
    ASSERT_TRUE(ours.ok()) << ours.error().to_string();
    const EncodedParts theirs = of_mlx(format);
    EXPECT_EQ(ours->scales, theirs.scales) << format.to_string();
    EXPECT_EQ(ours->offsets, theirs.offsets) << format.to_string();
    if (format.dtype == DType::kF32) {
      EXPECT_EQ(ours->codes, theirs.codes) << format.to_string();
    }
  }
}

// MLX chooses codes before it rounds scales and biases, so where rounding moved the grid, ours are
// nearer.
TEST_P(QuantGolden, NoNumberIsFurtherOffThanInMlx) {
  for (const QuantFormat& format : formats()) {
    const auto ours = quantize_affine({weights_, rows_, cols_}, format);
    ASSERT_TRUE(ours.ok()) << ours.error().to_string();
    const std::vector<float> own = decode(*ours, format, rows_, cols_);
    const std::vector<float> other = decode(of_mlx(format), format, rows_, cols_);
    for (size_t i = 0; i < weights_.size(); ++i) {
      const float rounding = 1e-6f * std::abs(weights_[i]) + 1e-12f;
      ASSERT_LE(std::abs(own[i] - weights_[i]), std::abs(other[i] - weights_[i]) + rounding)
          << format.to_string() << ", element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ScaleTypes, QuantGolden,
                         ::testing::Values(DType::kF32, DType::kBf16, DType::kF16),
                         [](const auto& test) { return std::string(dtype_name(test.param)); });

}  // namespace
}  // namespace moeflux::testing
