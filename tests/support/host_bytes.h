// A buffer over bytes that a test made, and views of what quantize_affine() returns.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "quant/quantize.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace moeflux::testing {

class HostBytes : public Buffer {
 public:
  explicit HostBytes(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  size_t size_bytes() const override { return bytes_.size(); }
  std::byte* host_data() const override { return const_cast<std::byte*>(bytes_.data()); }

 private:
  std::vector<std::byte> bytes_;
};

/// The numbers that a reader of `matrix` gets, row after row.
inline std::vector<float> decode(const EncodedParts& matrix, const QuantFormat& format,
                                 int64_t rows, int64_t cols) {
  HostBytes codes(matrix.codes);
  HostBytes scales(matrix.scales);
  HostBytes biases(matrix.offsets);
  const Shape groups{rows, cols / format.group_size};
  Weight weight;
  weight.format = format;
  weight.rows = rows;
  weight.cols = cols;
  weight.parts.codes = Tensor::view(codes, 0, {rows, cols * format.bits / 32}, DType::kU32);
  weight.parts.scales = Tensor::view(scales, 0, groups, format.dtype);
  weight.parts.offsets = Tensor::view(biases, 0, groups, format.dtype);
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (int64_t r = 0; r < rows; ++r) {
    const auto begin = static_cast<size_t>(r * cols);
    decode_row(weight, r, std::span(values).subspan(begin, static_cast<size_t>(cols)));
  }
  return values;
}

}  // namespace moeflux::testing
