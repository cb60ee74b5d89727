#include "quant/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/format.h"
#include "quant/formats/affine.h"

namespace moeflux {
namespace {

// Stores `value` as element `i` of an array of `dtype` and returns what was stored.
float store_rounded(std::vector<std::byte>& array, size_t i, float value, DType dtype) {
  std::byte* at = array.data() + i * static_cast<size_t>(dtype_bits(dtype)) / 8;
  if (dtype == DType::kF32) {
    std::memcpy(at, &value, sizeof value);
    return value;
  }
  const uint16_t bits = dtype == DType::kF16 ? to_f16(value).bits : to_bf16(value).bits;
  std::memcpy(at, &bits, sizeof bits);
  return dtype == DType::kF16 ? to_float(F16{bits}) : to_float(Bf16{bits});
}

}  // namespace

Parts<std::span<std::byte>> spans_of(EncodedParts& parts) {
  Parts<std::span<std::byte>> spans;
  for (const PartRole role : kPartRoles) spans[role] = parts[role];
  return spans;
}

QuantFormat usual_quantisation() { return QuantFormat::affine(4, 64, DType::kBf16); }

Result<EncodedParts> quantize_affine(const MatrixView& matrix, const QuantFormat& format) {
  if (!format.is_affine() || !is_valid(format, matrix.cols)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "cannot quantise rows of {} numbers to {} with {} scales", matrix.cols,
                      format.to_string(), dtype_name(format.dtype));
  }
  MF_CHECK(static_cast<int64_t>(matrix.values.size()) == matrix.rows * matrix.cols);
  const Parts<uint64_t> bytes = part_bytes(format, matrix.rows, matrix.cols);
  EncodedParts result{.codes = std::vector<std::byte>(bytes.codes),
                      .scales = std::vector<std::byte>(bytes.scales),
                      .offsets = std::vector<std::byte>(bytes.offsets)};
  const auto group_size = static_cast<size_t>(format.group_size);
  const auto cols = static_cast<size_t>(matrix.cols);
  const size_t row_bytes = cols * static_cast<size_t>(format.bits) / 8;
  for (size_t begin = 0; begin < matrix.values.size(); begin += group_size) {
    const std::span<const float> group = matrix.values.subspan(begin, group_size);
    const bool finite =
        std::all_of(group.begin(), group.end(), [](float w) { return std::isfinite(w); });
    const affine::GroupParams exact =
        finite ? affine::choose_group_params(group, format.bits) : affine::GroupParams{0, 0};
    const affine::GroupParams stored = {
        store_rounded(result.scales, begin / group_size, exact.scale, format.dtype),
        store_rounded(result.offsets, begin / group_size, exact.bias, format.dtype)};
    if (!finite || !std::isfinite(stored.scale) || !std::isfinite(stored.bias)) {
      return make_error(ErrorCode::kInvalidArgument, "row {}, columns {} to {}: {} in {}",
                        begin / cols, begin % cols, begin % cols + group_size - 1,
                        finite ? "scale or bias is not finite" : "a number is not finite",
                        finite ? dtype_name(format.dtype) : std::string_view("the matrix"));
    }
    std::byte* row = result.codes.data() + begin / cols * row_bytes;
    for (size_t i = 0; i < group_size; ++i) {
      affine::set_code(row, static_cast<int64_t>(begin % cols + i), format.bits,
                       affine::encode(group[i], stored, format.bits));
    }
  }
  return result;
}

}  // namespace moeflux
