// FP8 as checkpoints spell it: M.weight F8_E4M3 [..., rows, cols] and scales of one of
//   M.weight_scale_inv  blocks (DeepSeek, Qwen, MiniMax), or U8 of 1 x 32 (MXFP8); one for the
//                       matrix where config.json says no blocks (Ministral 3), or two for the
//                       halves of fused experts
//   M.scale             blocks, F8_E8M0 (DeepSeek-V4)
//   M.weight_scale      [rows, 1] or [rows], one a row; one for the matrix; blocks
//                       (compressed-tensors, Model Optimizer, Quark, FBGEMM)
// Tensors for activations are claimed and have no effect: they are rounded nowhere here.
#include <array>

#include "base/format.h"
#include "model/weights/stored_formats.h"
#include "quant/formats/tensor_formats.h"

namespace moeflux::stored_fp8 {
namespace {

constexpr std::array<std::string_view, 4> kScales = {"weight_scale_inv", "scale_inv", "scale",
                                                     "weight_scale"};

bool is_spelled(const ModuleTensors& tensors) {
  const TensorEntry* weight = tensors.find("weight");
  return weight != nullptr && (weight->dtype == DType::kF8E4M3 || weight->dtype == DType::kF8E5M2);
}

int64_t blocks_in(int64_t extent, int64_t block) { return (extent + block - 1) / block; }

bool is_one_per_matrix(const Shape& scales, const Shape& shape) {
  const int64_t size = shape[shape.rank() - 2] * shape.back();
  if (scales.num_elements() * size == shape.num_elements()) return true;
  return shape.rank() == 3 && scales == Shape{shape[0], 2, 1};
}

bool is_one_per_row(const Shape& scales, const Shape& shape) {
  if (scales == with_matrix(shape, shape[shape.rank() - 2], 1)) return true;
  return shape.rank() == 2 && scales == Shape{shape[0]};
}

/// By the scales' shape, among those that their name and config.json allow; nullopt for none.
std::optional<QuantFormat> format_of(const TensorEntry& scales, bool has_usual_name,
                                     const QuantRule& rule, const Shape& shape) {
  const bool is_power = scales.dtype == DType::kU8 || scales.dtype == DType::kF8E8M0;
  const DType dtype = is_power ? DType::kF8E8M0 : scales.dtype;
  if (has_usual_name && is_one_per_row(scales.shape, shape)) return fp8_of(dtype, 1, 0);
  if ((has_usual_name || rule.block.empty()) && is_one_per_matrix(scales.shape, shape)) {
    return fp8_of(dtype, 0, 0);
  }
  std::vector<std::array<int64_t, 2>> blocks = {{128, 128}, {1, 32}};
  if (!rule.block.empty()) blocks = {{rule.block[0], rule.block[1]}};
  if (!rule.block.empty() && is_power) blocks.push_back({1, 32});  // tables, of single rows
  for (const auto& [rows, cols] : blocks) {
    if (rows < 1 || cols < 1 || rows > 4096 || cols > 4096) continue;
    const Shape expected =
        with_matrix(shape, blocks_in(shape[shape.rank() - 2], rows), blocks_in(shape.back(), cols));
    if (scales.shape == expected) {
      return fp8_of(dtype, static_cast<int>(rows), static_cast<int>(cols));
    }
  }
  return std::nullopt;
}

Result<StoredModule> read(const ModuleTensors& tensors, const QuantConfig& quant,
                          const Shape& shape) {
  StoredModule found{.name = tensors.module()};
  found.parts.codes = tensors.part("weight");
  const QuantRule& rule = quant.rule();
  MF_RETURN_IF_ERROR(rule.expect_method(
      found.name, "FP8", {"fp8", "mxfp8", "compressed-tensors", "modelopt", "quark"}));
  if (found.parts.codes.entry->dtype != DType::kF8E4M3) {
    return tensors.mismatch(ErrorCode::kUnsupported, {"weight"}, "F8_E4M3");
  }
  std::string_view name = kScales.back();
  for (size_t i = kScales.size(); i-- > 0;) {
    if (tensors.find(kScales[i]) != nullptr) name = kScales[i];
  }
  found.parts.scales = tensors.part(name);
  const std::string expected = formatted(
      "an FP8 matrix {} with scales {}", shape.to_string(),
      rule.block.size() == 2 ? formatted("for blocks of {} x {}", rule.block[0], rule.block[1])
                             : "for blocks of 128 x 128 or 1 x 32, for rows or for the matrix");
  if (found.parts.scales.entry == nullptr || found.parts.codes.entry->shape != shape) {
    return tensors.mismatch(ErrorCode::kCorruption, {"weight", name}, expected);
  }
  const std::optional<QuantFormat> format =
      format_of(*found.parts.scales.entry, name == kScales.back(), rule, shape);
  if (!format || !is_valid(*format, shape.back())) {
    return tensors.mismatch(ErrorCode::kCorruption, {"weight", name}, expected);
  }
  found.format = *format;
  for (const std::string_view other : {"input_scale", "activation_scale"}) {
    if (tensors.find(other) != nullptr) found.others.push_back(tensors.name_of(other));
  }
  return found;
}

}  // namespace

extern const StoredFormat spelling = {.codes = "weight", .is_spelled = is_spelled, .read = read};

}  // namespace moeflux::stored_fp8
