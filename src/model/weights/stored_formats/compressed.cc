// Formats that compressed-tensors packs, all below M.weight_packed:
//   nvfp4-pack-quantized  U8 [..., rows, cols / 2], M.weight_scale F8_E4M3 [..., rows, cols / 16],
//                         M.weight_global_scale F32, by which is divided
//   mxfp4-pack-quantized  U8 [..., rows, cols / 2], M.weight_scale U8 [..., rows, cols / 32]
//   pack-quantized        I32 [..., rows, cols * bits / 32], M.weight_scale [..., rows, groups],
//                         M.weight_zero_point I32 [..., rows * bits / 32, groups],
//                         M.weight_g_idx I32 [cols], M.weight_shape I64 [2]: rows, cols
#include <algorithm>

#include "base/format.h"
#include "model/weights/stored_formats.h"
#include "quant/formats/tensor_formats.h"

namespace moeflux::stored_compressed {
namespace {

bool is_spelled(const ModuleTensors& tensors) { return tensors.find("weight_packed") != nullptr; }

bool is(const StoredPart& part, DType dtype, const Shape& shape) {
  return part.entry != nullptr && part.entry->dtype == dtype && part.entry->shape == shape;
}

/// config.json names the format, if it names any.
Status expect_format(const ModuleTensors& tensors, const QuantRule& rule, std::string_view format) {
  if (rule.method.empty() || rule.has_format(format)) return {};
  return make_error(ErrorCode::kCorruption,
                    "module {} is stored as {}, config.json has no such group", tensors.module(),
                    format);
}

Result<StoredModule> read_floats(const ModuleTensors& tensors, const QuantConfig& quant,
                                 const Shape& shape, StoredModule found) {
  const int64_t rows = shape[shape.rank() - 2];
  const int64_t cols = shape.back();
  found.parts.scales = tensors.part("weight_scale");
  const TensorEntry* scales = found.parts.scales.entry;
  const bool is_nvfp4 = scales != nullptr && scales->dtype == DType::kF8E4M3;
  MF_RETURN_IF_ERROR(expect_format(tensors, quant.rule(),
                                   is_nvfp4 ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized"));
  found.format = is_nvfp4 ? nvfp4_of(OuterScale::kDivisor) : QuantFormat::of(mxfp4_format);
  const DType dtype = is_nvfp4 ? DType::kF8E4M3 : DType::kU8;
  const int64_t group = is_nvfp4 ? 16 : 32;
  bool fits = is_valid(found.format, cols) &&
              is(found.parts.codes, DType::kU8, with_matrix(shape, rows, cols / 2)) &&
              is(found.parts.scales, dtype, with_matrix(shape, rows, cols / group));
  if (is_nvfp4) {
    found.parts.outer_scale = tensors.part("weight_global_scale");
    const TensorEntry* outer = found.parts.outer_scale.entry;
    fits = fits && outer != nullptr && outer->dtype == DType::kF32;
  }
  if (!fits) {
    return tensors.mismatch(ErrorCode::kCorruption,
                            {"weight_packed", "weight_scale", "weight_global_scale"},
                            "an NVFP4 or MXFP4 matrix " + shape.to_string());
  }
  for (const std::string_view other : {"input_global_scale", "input_scale"}) {
    if (tensors.find(other) != nullptr) found.others.push_back(tensors.name_of(other));
  }
  return found;
}

/// Some group of config.json is of such integers, if there are groups.
Status expect_integers(const ModuleTensors& tensors, const QuantRule& rule, const QuantFormat& f,
                       int64_t cols) {
  if (rule.method.empty()) return {};
  std::string stated;
  for (const WeightScheme& s : rule.schemes) {
    if (s.is_float || s.format != "pack-quantized") continue;
    const int width = s.group_size >= cols ? 0 : s.group_size;
    if (s.bits == f.bits && width == f.group_size && s.symmetric != has_zeros(f)) return {};
    stated += formatted("{}{} bits in groups of {}{}", stated.empty() ? "" : ", ", s.bits,
                        s.group_size, s.symmetric ? "" : " with zero points");
  }
  return make_error(ErrorCode::kCorruption, "module {} is stored as {}, config.json says {}",
                    tensors.module(), f.to_string(), stated.empty() ? "no integers" : stated);
}

/// One module says [rows, cols], a stack of them the same of each.
Status check_stated_shape(const ModuleTensors& tensors, const Shape& shape) {
  if (tensors.find("weight_shape") == nullptr) return {};
  MF_ASSIGN_OR_RETURN(const std::vector<int64_t> stated, tensors.read_ints("weight_shape"));
  const int rank = shape.rank();
  const auto matrices =
      static_cast<size_t>(shape.num_elements() / (shape[rank - 2] * shape[rank - 1]));
  bool fits = stated.size() == 2 * matrices;
  for (size_t i = 0; fits && i < stated.size(); ++i) {
    fits = stated[i] == shape[rank - 2 + static_cast<int>(i % 2)];
  }
  if (fits) return {};
  std::string numbers;
  for (size_t i = 0; i < std::min<size_t>(stated.size(), 4); ++i) {
    numbers += formatted("{}{}", i == 0 ? "" : ", ", stated[i]);
  }
  return make_error(ErrorCode::kCorruption, "module {}: weight_shape says [{}], config.json {}",
                    tensors.module(), numbers, shape.to_string());
}

/// Zero points and the column map, where there are any.
Status read_integer_parts(const ModuleTensors& tensors, const QuantRule& rule, const Shape& shape,
                          StoredModule& found) {
  QuantFormat& format = found.format;
  if (tensors.find("weight_zero_point") != nullptr) {
    found.parts.offsets = tensors.part("weight_zero_point");
    format.variant |= kZeroPoints;
  }
  const auto asks_for_map = [&](const WeightScheme& s) {
    return s.has_column_map && s.bits == format.bits && s.group_size == format.group_size;
  };
  const bool wants_map = std::any_of(rule.schemes.begin(), rule.schemes.end(), asks_for_map);
  MF_ASSIGN_OR_RETURN(const bool is_mapped,
                      maps_columns(tensors, "weight_g_idx", format, shape.back()));
  if (is_mapped && shape.rank() == 2) {
    found.parts.column_map = tensors.part("weight_g_idx");
    format.variant |= kColumnMap;
  } else if (is_mapped || (wants_map && tensors.find("weight_g_idx") == nullptr)) {
    return tensors.mismatch(ErrorCode::kUnsupported, {"weight_packed", "weight_g_idx"},
                            "a map of columns for each matrix, as actorder says");
  } else if (tensors.find("weight_g_idx") != nullptr) {
    found.others.push_back(tensors.name_of("weight_g_idx"));
  }
  return {};
}

Result<StoredModule> read_integers(const ModuleTensors& tensors, const QuantConfig& quant,
                                   const Shape& shape, StoredModule found) {
  found.parts.scales = tensors.part("weight_scale");
  const TensorEntry& codes = *found.parts.codes.entry;
  const TensorEntry* scales = found.parts.scales.entry;
  const int64_t rows = shape[shape.rank() - 2];
  const int64_t cols = shape.back();
  const int64_t words = codes.shape.rank() > 0 ? codes.shape.back() : 0;
  const int64_t groups = scales != nullptr && scales->shape.rank() > 0 ? scales->shape.back() : 0;
  const auto bits = static_cast<int>(std::min<int64_t>(words * 32 / cols, 64));
  const int64_t width = groups > 1 ? cols / groups : 0;
  const auto fails = [&] {
    return tensors.mismatch(ErrorCode::kCorruption,
                            {"weight_packed", "weight_scale", "weight_zero_point"},
                            "4 or 8 bits of a matrix " + shape.to_string());
  };
  if (scales == nullptr || codes.dtype != DType::kI32 || groups < 1 || width > 65536)
    return fails();
  found.format = integers_of(packed_int_format, bits, static_cast<int>(width), scales->dtype);
  if (!is_valid(found.format, cols) || codes.shape != with_matrix(shape, rows, cols * bits / 32) ||
      scales->shape != with_matrix(shape, rows, groups) || (width > 0 && width * groups != cols)) {
    return fails();
  }
  MF_RETURN_IF_ERROR(read_integer_parts(tensors, quant.rule(), shape, found));
  const TensorEntry* zeros = found.parts.offsets.entry;
  if (zeros != nullptr && (zeros->dtype != DType::kI32 ||
                           zeros->shape != with_matrix(shape, (rows * bits + 31) / 32, groups))) {
    return fails();
  }
  MF_RETURN_IF_ERROR(expect_integers(tensors, quant.rule(), found.format, cols));
  MF_RETURN_IF_ERROR(check_stated_shape(tensors, shape));
  for (const std::string_view other : {"weight_shape", "input_scale"}) {
    if (tensors.find(other) != nullptr) found.others.push_back(tensors.name_of(other));
  }
  return found;
}

Result<StoredModule> read(const ModuleTensors& tensors, const QuantConfig& quant,
                          const Shape& shape) {
  StoredModule found{.name = tensors.module()};
  MF_RETURN_IF_ERROR(
      quant.rule().expect_method(found.name, "a packed matrix", {"compressed-tensors"}));
  found.parts.codes = tensors.part("weight_packed");
  if (found.parts.codes.entry->dtype == DType::kU8) {
    return read_floats(tensors, quant, shape, std::move(found));
  }
  return read_integers(tensors, quant, shape, std::move(found));
}

}  // namespace

extern const StoredFormat spelling = {
    .codes = "weight_packed", .is_spelled = is_spelled, .read = read};

}  // namespace moeflux::stored_compressed
