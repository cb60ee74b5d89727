// FP8: numbers of one byte (e4m3), and a scale for each rectangle of group_rows x group_size of
// them, w = scale * e4m3(code); rectangles at the right and lower edge may be partial. 128 x 128
// are DeepSeek's blocks, 1 x 32 MXFP8, whole rows scales per channel, the whole matrix a scale per
// tensor. Scales are floats, or powers of two of a byte (E8M0).
// Source: DeepSeek-V3's published checkpoints, OCP Microscaling Formats 1.0, compressed-tensors.
#include <bit>

#include "base/format.h"
#include "quant/format_traits.h"
#include "quant/formats/tensor_formats.h"
#include "quant/small_floats.h"

namespace moeflux {
namespace fp8 {
namespace {

// A GPU kernel finds a column's scale by a shift, a CPU kernel reads 32 columns at a time.
bool is_extent(int group, int least) {
  return group == 0 ||
         (group >= least && group <= 4096 && std::has_single_bit(static_cast<unsigned>(group)));
}

std::string name_of(const QuantFormat& f) {
  const char* ue8m0 = f.dtype == DType::kF8E8M0 ? " ue8m0" : "";
  if (f.group_size == 0) return f.group_rows == 0 ? "fp8 per tensor" : "fp8 per channel";
  if (f.group_rows == 1 && f.group_size == 32 && f.dtype == DType::kF8E8M0) return "mxfp8";
  return formatted("fp8-{}x{}{}", f.group_rows, f.group_size, ue8m0);
}

bool fits(const QuantFormat& format, int64_t cols) {
  return cols > 0 && (is_plain_float(format.dtype) || format.dtype == DType::kF8E8M0) &&
         format.dtype != DType::kF64 && is_extent(format.group_rows, 1) &&
         is_extent(format.group_size, 32) &&
         format == fp8_of(format.dtype, format.group_rows, format.group_size);
}

int64_t groups_of(int64_t extent, int group) {
  return group == 0 ? 1 : (extent + group - 1) / group;
}

void lay_out_parts(Weight& weight) {
  const QuantFormat& format = weight.format;
  weight.parts.codes = unplaced({weight.rows, weight.cols}, DType::kF8E4M3);
  weight.parts.scales = unplaced(
      {groups_of(weight.rows, format.group_rows), groups_of(weight.cols, format.group_size)},
      format.dtype);
}

float scale_at(const std::byte* scales, int64_t at, DType dtype) {
  if (dtype == DType::kF8E8M0) return e8m0_to_float(static_cast<uint8_t>(scales[at]));
  return load_float(scales, at, dtype);
}

void decode(const Weight& weight, int64_t row, std::span<float> out) {
  const QuantFormat& format = weight.format;
  const std::byte* codes = host_ptr<std::byte>(weight.parts.codes) + row * weight.cols;
  const std::byte* scales = host_ptr<std::byte>(weight.parts.scales);
  const int64_t groups = groups_of(weight.cols, format.group_size);
  const int64_t first = format.group_rows == 0 ? 0 : row / format.group_rows * groups;
  const int64_t width = format.group_size == 0 ? weight.cols : format.group_size;
  for (int64_t c = 0; c < weight.cols; ++c) {
    out[static_cast<size_t>(c)] = scale_at(scales, first + c / width, format.dtype) *
                                  e4m3_to_float(static_cast<uint8_t>(codes[c]));
  }
}

}  // namespace
}  // namespace fp8

const FormatTraits fp8_format = {"fp8", fp8::name_of, fp8::fits, fp8::lay_out_parts, fp8::decode};

}  // namespace moeflux
