// MXFP4 as gpt-oss's checkpoints spell it: M_blocks U8 [..., rows, cols / 32, 16] and M_scales U8
// [..., rows, cols / 32] for a module M.
#include "base/format.h"
#include "model/stored_formats.h"
#include "quant/format_traits.h"

namespace moeflux {

extern const FormatTraits mxfp4_format;

namespace {

constexpr int64_t kGroup = 32;

Result<QuantFormat> read(const StoredModule& module, const Shape& shape) {
  const TensorEntry& blocks = *module.parts.codes.entry;
  const TensorEntry& scales = *module.parts.scales.entry;
  std::vector<int64_t> extents;
  for (int i = 0; i < shape.rank(); ++i) extents.push_back(shape[i]);
  extents.back() /= kGroup;
  const bool scales_fit = scales.shape == Shape(extents);
  extents.push_back(kGroup / 2);
  const QuantFormat format = QuantFormat::of(mxfp4_format);
  if (is_valid(format, shape.back()) && scales_fit && blocks.dtype == DType::kU8 &&
      scales.dtype == DType::kU8 && blocks.shape == Shape(extents)) {
    return format;
  }
  return make_error(ErrorCode::kCorruption,
                    "module {}: blocks {} {}, scales {} {} do not make an MXFP4 matrix {}",
                    module.name, dtype_name(blocks.dtype), blocks.shape.to_string(),
                    dtype_name(scales.dtype), scales.shape.to_string(), shape.to_string());
}

}  // namespace

extern const StoredFormat mxfp4_stored;
const StoredFormat mxfp4_stored = {
    .quant_method = "mxfp4", .suffixes = {.codes = "_blocks", .scales = "_scales"}, .read = read};

}  // namespace moeflux
