// MXFP4 as gpt-oss's checkpoints spell it: M_blocks U8 [..., rows, cols / 32, 16] and M_scales U8
// [..., rows, cols / 32] for a module M.
#include "model/weights/stored_formats.h"
#include "quant/formats/tensor_formats.h"

namespace moeflux::stored_mxfp4 {
namespace {

constexpr int64_t kGroup = 32;

bool is_spelled(const ModuleTensors& tensors) { return tensors.find("blocks") != nullptr; }

Result<StoredModule> read(const ModuleTensors& tensors, const QuantConfig& quant,
                          const Shape& shape) {
  StoredModule found{.name = tensors.module(), .format = QuantFormat::of(mxfp4_format)};
  MF_RETURN_IF_ERROR(quant.rule().expect_method(found.name, "MXFP4 blocks", {"mxfp4"}));
  found.parts.codes = tensors.part("blocks");
  found.parts.scales = tensors.part("scales");
  const TensorEntry& blocks = *found.parts.codes.entry;
  const TensorEntry* scales = found.parts.scales.entry;
  std::vector<int64_t> extents;
  for (int i = 0; i < shape.rank(); ++i) extents.push_back(shape[i]);
  extents.back() /= kGroup;
  const bool scales_fit =
      scales != nullptr && scales->shape == Shape(extents) && scales->dtype == DType::kU8;
  extents.push_back(kGroup / 2);
  if (is_valid(found.format, shape.back()) && scales_fit && blocks.dtype == DType::kU8 &&
      blocks.shape == Shape(extents)) {
    return found;
  }
  return tensors.mismatch(ErrorCode::kCorruption, {"blocks", "scales"},
                          "an MXFP4 matrix " + shape.to_string());
}

}  // namespace

extern const StoredFormat spelling = {.codes = "blocks", .is_spelled = is_spelled, .read = read};

}  // namespace moeflux::stored_mxfp4
