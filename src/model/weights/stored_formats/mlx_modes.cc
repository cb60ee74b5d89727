// MLX's modes of small floats: M.weight U32 [..., rows, cols * bits / 32] and M.scales U8 [...,
// rows, cols / group], no biases. Bits and group tell mxfp4, mxfp8 and nvfp4 apart. Words are
// little-endian, so that their bytes are those of the other spellings.
#include "model/weights/stored_formats.h"

namespace moeflux::stored_mlx_modes {
namespace {

bool is_spelled(const ModuleTensors& tensors) {
  const TensorEntry* weight = tensors.find("weight");
  const TensorEntry* scales = tensors.find("scales");
  return weight != nullptr && weight->dtype == DType::kU32 && scales != nullptr &&
         scales->dtype == DType::kU8;
}

Result<StoredModule> read(const ModuleTensors& tensors, const QuantConfig& quant,
                          const Shape& shape) {
  StoredModule found{.name = tensors.module()};
  MF_RETURN_IF_ERROR(quant.rule().expect_method(found.name, "an MLX matrix", {"mlx", "mxfp4"}));
  found.parts.codes = tensors.part("weight");
  found.parts.scales = tensors.part("scales");
  const int64_t rows = shape[shape.rank() - 2];
  const int64_t cols = shape.back();
  const ModuleQuant modes[] = {
      {4, 32, QuantMode::kMxfp4}, {8, 32, QuantMode::kMxfp8}, {4, 16, QuantMode::kNvfp4}};
  for (const ModuleQuant& mode : modes) {
    found.format = mode.format(DType::kU8);
    if (!is_valid(found.format, cols) ||
        found.parts.codes.entry->shape != with_matrix(shape, rows, cols * mode.bits / 32) ||
        found.parts.scales.entry->shape != with_matrix(shape, rows, cols / mode.group_size)) {
      continue;
    }
    MF_RETURN_IF_ERROR(check_stated(quant, found));
    return found;
  }
  return tensors.mismatch(ErrorCode::kCorruption, {"weight", "scales"},
                          "mxfp4, mxfp8 or nvfp4 of a matrix " + shape.to_string());
}

}  // namespace

extern const StoredFormat spelling = {.codes = "weight", .is_spelled = is_spelled, .read = read};

}  // namespace moeflux::stored_mlx_modes
