// Whole numbers in signed bytes, which compressed-tensors calls int-quantized and Quark int8:
//   M.weight I8 [..., rows, cols], M.weight_scale [..., rows, groups] or [rows],
//   M.weight_zero_point I8 of the scales' shape
// Tensors for activations are claimed and have no effect: they are rounded nowhere here.
#include <algorithm>

#include "base/format.h"
#include "model/weights/stored_formats.h"
#include "quant/formats/tensor_formats.h"

namespace moeflux::stored_int8 {
namespace {

bool is_spelled(const ModuleTensors& tensors) {
  const TensorEntry* weight = tensors.find("weight");
  return weight != nullptr && weight->dtype == DType::kI8 &&
         tensors.find("weight_scale") != nullptr;
}

Status expect_bytes(const ModuleTensors& tensors, const QuantRule& rule) {
  MF_RETURN_IF_ERROR(rule.expect_method(tensors.module(), "whole numbers of a byte",
                                        {"compressed-tensors", "quark"}));
  const bool is_said = std::ranges::any_of(rule.schemes, [](const WeightScheme& scheme) {
    return !scheme.is_float && scheme.format != "pack-quantized";
  });
  if (is_said || rule.method != "compressed-tensors") return {};
  return make_error(ErrorCode::kCorruption,
                    "module {} is stored as int-quantized, config.json has no such group",
                    tensors.module());
}

/// One scale for a row may be a vector.
int64_t groups_of(const Shape& scales, const Shape& shape) {
  if (shape.rank() == 2 && scales == Shape{shape[0]}) return 1;
  const int64_t groups = scales.rank() > 0 ? scales.back() : 0;
  return scales == with_matrix(shape, shape[shape.rank() - 2], groups) ? groups : 0;
}

Result<StoredModule> read(const ModuleTensors& tensors, const QuantConfig& quant,
                          const Shape& shape) {
  MF_RETURN_IF_ERROR(expect_bytes(tensors, quant.rule()));
  StoredModule found{.name = tensors.module()};
  found.parts.codes = tensors.part("weight");
  found.parts.scales = tensors.part("weight_scale");
  const TensorEntry& scales = *found.parts.scales.entry;
  const int64_t groups = groups_of(scales.shape, shape);
  const int64_t width = groups > 1 ? shape.back() / groups : 0;
  const TensorEntry* zeros = tensors.find("weight_zero_point");
  const bool fits =
      groups > 0 && width <= 65536 && found.parts.codes.entry->shape == shape &&
      (width == 0 || width * groups == shape.back()) &&
      (zeros == nullptr || (zeros->dtype == DType::kI8 && zeros->shape == scales.shape));
  if (fits) {
    found.format = integers_of(packed_int_format, 8, static_cast<int>(width), scales.dtype);
    found.format.variant = kSignedBytes;
  }
  if (!fits || !is_valid(found.format, shape.back())) {
    return tensors.mismatch(ErrorCode::kCorruption, {"weight", "weight_scale", "weight_zero_point"},
                            formatted("I8 of a matrix {} with scales for rows or groups of columns",
                                      shape.to_string()));
  }
  if (zeros != nullptr) {
    found.parts.offsets = tensors.part("weight_zero_point");
    found.format.variant |= kZeroPoints;
  }
  for (const std::string_view other : {"input_scale", "input_zero_point"}) {
    if (tensors.find(other) != nullptr) found.others.push_back(tensors.name_of(other));
  }
  return found;
}

}  // namespace

extern const StoredFormat spelling = {.codes = "weight", .is_spelled = is_spelled, .read = read};

}  // namespace moeflux::stored_int8
