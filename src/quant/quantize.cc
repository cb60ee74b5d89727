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

// The least exponent under which `extreme` is at most 6, E2M1's largest number; that of 1 for zero.
int mxfp4_exponent(float extreme) {
  if (extreme == 0) return 0;
  int exponent = 0;
  const float fraction = std::frexp(extreme, &exponent);  // 6 is 0.75 * 2^3
  return std::max(exponent - (fraction <= 0.75f ? 3 : 2), -127);
}

uint8_t e2m1_nearest(float value) {
  constexpr float kBorders[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  const float magnitude = std::abs(value);
  uint8_t code = 0;
  for (const float border : kBorders) code = static_cast<uint8_t>(code + (magnitude > border));
  return code != 0 && value < 0 ? static_cast<uint8_t>(code | 8u) : code;
}

}  // namespace

Parts<std::span<std::byte>> spans_of(EncodedParts& parts) {
  Parts<std::span<std::byte>> spans;
  for (const PartRole role : kPartRoles) spans[role] = parts[role];
  return spans;
}

QuantFormat usual_quantisation() { return QuantFormat::affine(4, 64, DType::kBf16); }

Result<EncodedParts> quantize_affine(const MatrixView& matrix, const QuantFormat& format,
                                     AffineCodes codes) {
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
    const affine::GroupParams& params = codes == AffineCodes::kOfStored ? stored : exact;
    std::byte* row = result.codes.data() + begin / cols * row_bytes;
    for (size_t i = 0; i < group_size; ++i) {
      affine::set_code(row, static_cast<int64_t>(begin % cols + i), format.bits,
                       affine::encode(group[i], params, format.bits));
    }
  }
  return result;
}

Result<EncodedParts> quantize_mxfp4(const MatrixView& matrix) {
  constexpr size_t kGroup = 32;
  if (matrix.cols % static_cast<int64_t>(kGroup) != 0) {
    return make_error(ErrorCode::kInvalidArgument, "cannot quantise rows of {} numbers to mxfp4",
                      matrix.cols);
  }
  MF_CHECK(static_cast<int64_t>(matrix.values.size()) == matrix.rows * matrix.cols);
  EncodedParts result{.codes = std::vector<std::byte>(matrix.values.size() / 2),
                      .scales = std::vector<std::byte>(matrix.values.size() / kGroup)};
  for (size_t begin = 0; begin < matrix.values.size(); begin += kGroup) {
    const std::span<const float> group = matrix.values.subspan(begin, kGroup);
    float extreme = 0;
    for (const float w : group) {
      if (!std::isfinite(w)) {
        const auto cols = static_cast<size_t>(matrix.cols);
        return make_error(ErrorCode::kInvalidArgument,
                          "row {}, columns {} to {}: a number is not finite in the matrix",
                          begin / cols, begin % cols, begin % cols + kGroup - 1);
      }
      extreme = std::max(extreme, std::abs(w));
    }
    const int exponent = mxfp4_exponent(extreme);
    result.scales[begin / kGroup] = static_cast<std::byte>(exponent + 127);
    for (size_t i = 0; i < kGroup; i += 2) {
      const uint8_t low = e2m1_nearest(std::ldexp(group[i], -exponent));
      const uint8_t high = e2m1_nearest(std::ldexp(group[i + 1], -exponent));
      result.codes[(begin + i) / 2] = static_cast<std::byte>(low | (high << 4));
    }
  }
  return result;
}

Result<EncodedParts> encode_matrix(const MatrixView& matrix, const QuantFormat& format) {
  if (format.is_affine()) return quantize_affine(matrix, format, AffineCodes::kOfUnrounded);
  if (format.kind == &mxfp4_format) return quantize_mxfp4(matrix);
  MF_CHECK(format.is_plain());
  EncodedParts result{
      .codes = std::vector<std::byte>(matrix.values.size() *
                                      static_cast<size_t>(dtype_bits(format.dtype)) / 8)};
  for (size_t i = 0; i < matrix.values.size(); ++i) {
    store_rounded(result.codes, i, matrix.values[i], format.dtype);
  }
  return result;
}

}  // namespace moeflux
