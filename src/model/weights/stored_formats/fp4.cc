// Pairs of 4-bit floats in bytes, as three tools spell them:
//   Model Optimizer's NVFP4  M.weight U8 [..., rows, cols / 2], M.weight_scale F8_E4M3 [..., rows,
//                            cols / 16], M.weight_scale_2 F32, one for the matrix, or two for the
//                            halves of fused experts
//   DeepSeek-V4's experts    M.weight I8 [..., rows, cols / 2], M.scale F8_E8M0 [..., rows,
//                            cols / 32]: MXFP4; U8 says the same bytes
//   Quark's MXFP4            M.weight U8 [..., rows, cols / 2], M.weight_scale U8 [..., rows,
//                            cols / 32]
#include "model/weights/stored_formats.h"
#include "quant/formats/tensor_formats.h"

namespace moeflux::stored_fp4 {
namespace {

bool is_spelled(const ModuleTensors& tensors) {
  const TensorEntry* weight = tensors.find("weight");
  if (weight == nullptr) return false;
  return weight->dtype == DType::kU8 ||
         (weight->dtype == DType::kI8 && tensors.find("scale") != nullptr);
}

bool is(const StoredPart& part, DType dtype, const Shape& shape) {
  return part.entry != nullptr && part.entry->dtype == dtype && part.entry->shape == shape;
}
bool is_bytes(const StoredPart& part, DType usual, const Shape& shape) {
  return is(part, usual, shape) || is(part, DType::kU8, shape);
}

Result<StoredModule> read_mxfp4(const ModuleTensors& tensors, const QuantConfig& quant,
                                const Shape& shape, StoredModule found, std::string_view scale) {
  MF_RETURN_IF_ERROR(quant.rule().expect_method(found.name, "MXFP4 pairs", {"fp8", "quark"}));
  const int64_t rows = shape[shape.rank() - 2];
  found.format = QuantFormat::of(mxfp4_format);
  found.parts.scales = tensors.part(scale);
  if (is_valid(found.format, shape.back()) &&
      is_bytes(found.parts.codes, DType::kI8, with_matrix(shape, rows, shape.back() / 2)) &&
      is_bytes(found.parts.scales, DType::kF8E8M0, with_matrix(shape, rows, shape.back() / 32))) {
    return found;
  }
  return tensors.mismatch(ErrorCode::kCorruption, {"weight", scale},
                          "an MXFP4 matrix " + shape.to_string());
}

Result<StoredModule> read(const ModuleTensors& tensors, const QuantConfig& quant,
                          const Shape& shape) {
  StoredModule found{.name = tensors.module()};
  found.parts.codes = tensors.part("weight");
  const bool is_quark = quant.rule().method == "quark";
  if (is_quark || tensors.find("scale") != nullptr) {
    const std::string_view scale = is_quark ? "weight_scale" : "scale";
    return read_mxfp4(tensors, quant, shape, std::move(found), scale);
  }
  MF_RETURN_IF_ERROR(quant.rule().expect_method(found.name, "NVFP4", {"modelopt"}));
  const int64_t rows = shape[shape.rank() - 2];
  found.format = nvfp4_of(OuterScale::kFactor);
  found.parts.scales = tensors.part("weight_scale");
  found.parts.outer_scale = tensors.part("weight_scale_2");
  const TensorEntry* outer = found.parts.outer_scale.entry;
  if (!is_valid(found.format, shape.back()) || outer == nullptr || outer->dtype != DType::kF32 ||
      !is(found.parts.codes, DType::kU8, with_matrix(shape, rows, shape.back() / 2)) ||
      !is(found.parts.scales, DType::kF8E4M3, with_matrix(shape, rows, shape.back() / 16))) {
    return tensors.mismatch(ErrorCode::kCorruption, {"weight", "weight_scale", "weight_scale_2"},
                            "an NVFP4 matrix " + shape.to_string());
  }
  if (tensors.find("input_scale") != nullptr)
    found.others.push_back(tensors.name_of("input_scale"));
  return found;
}

}  // namespace

extern const StoredFormat spelling = {.codes = "weight", .is_spelled = is_spelled, .read = read};

}  // namespace moeflux::stored_fp4
