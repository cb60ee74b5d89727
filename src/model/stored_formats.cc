#include "model/stored_formats.h"

#include <algorithm>

#include "base/format.h"

namespace moeflux {
namespace {

/// The packed widths tell bits and group size.
std::optional<QuantFormat> find_affine(TensorClaims& claims, const std::string& module,
                                       const TensorEntry& codes, const TensorEntry& scales,
                                       const Shape& shape) {
  const TensorEntry* biases = claims.index().find(module + ".biases");
  if (biases == nullptr || codes.dtype != DType::kU32) {
    claims.fail(
        make_error(ErrorCode::kUnsupported,
                   "module {} has scales, {} and weights of dtype {}; only MLX affine groups "
                   "(U32 weights, scales, biases) are supported",
                   module, biases == nullptr ? "no biases" : "biases", dtype_name(codes.dtype)));
    return std::nullopt;
  }
  const int64_t cols = shape.back();
  const int64_t packed = codes.shape.rank() > 0 ? codes.shape.back() : 0;
  const int64_t groups = scales.shape.rank() > 0 ? scales.shape.back() : 0;
  const int64_t bits = packed * 32 / cols;
  const int64_t group_size = groups > 0 ? cols / groups : 0;
  Shape packed_shape = shape;
  packed_shape.set(shape.rank() - 1, packed);
  Shape group_shape = shape;
  group_shape.set(shape.rank() - 1, groups);
  const QuantFormat format =
      QuantFormat::affine(static_cast<int>(std::min<int64_t>(bits, 64)),
                          static_cast<int>(std::min<int64_t>(group_size, 4096)), scales.dtype);
  if (!is_valid(format, cols) || packed * 32 != bits * cols || groups * group_size != cols ||
      codes.shape != packed_shape || scales.shape != group_shape || biases->shape != scales.shape ||
      biases->dtype != scales.dtype) {
    claims.fail(make_error(ErrorCode::kCorruption,
                           "module {}: weight {}, scales {} {}, biases {} {} do not make an affine "
                           "matrix {}",
                           module, codes.shape.to_string(), dtype_name(scales.dtype),
                           scales.shape.to_string(), dtype_name(biases->dtype),
                           biases->shape.to_string(), shape.to_string()));
    return std::nullopt;
  }
  return format;
}

}  // namespace

std::optional<QuantFormat> find_format(TensorClaims& claims, const QuantConfig& quant,
                                       const std::string& module, std::string_view weight_name,
                                       const Shape& shape) {
  const std::string name = module + std::string(weight_name);
  const TensorEntry* entry = claims.index().find(name);
  if (entry == nullptr) {
    claims.fail_missing(name);
    return std::nullopt;
  }
  const int64_t cols = shape.back();
  const TensorEntry* scales = claims.index().find(module + ".scales");
  if (scales == nullptr) {
    if (entry->shape != shape) {
      claims.fail(make_error(ErrorCode::kCorruption, "tensor {} has shape {}, config.json means {}",
                             name, entry->shape.to_string(), shape.to_string()));
      return std::nullopt;
    }
    const QuantFormat format = QuantFormat::plain(entry->dtype);
    if (is_valid(format, cols)) return format;
    claims.fail(
        make_error(ErrorCode::kUnsupported,
                   "tensor {} has dtype {}, supported for weights are F32, F16, BF16 and MLX "
                   "affine groups",
                   name, dtype_name(entry->dtype)));
    return std::nullopt;
  }
  const std::optional<QuantFormat> format = find_affine(claims, module, *entry, *scales, shape);
  if (!format) return std::nullopt;
  const std::optional<ModuleQuant> stated = quant.lookup(module);
  if (stated && (stated->bits != format->bits || stated->group_size != format->group_size)) {
    claims.fail(
        make_error(ErrorCode::kCorruption,
                   "module {} is stored with {} bits in groups of {}, config.json says {} bits "
                   "in groups of {}",
                   module, format->bits, format->group_size, stated->bits, stated->group_size));
    return std::nullopt;
  }
  return format;
}

std::vector<const TensorEntry*> claim_parts(TensorClaims& claims, const std::string& module,
                                            std::string_view weight_name,
                                            const QuantFormat& format) {
  std::vector<const TensorEntry*> parts = {claims.claim(module + std::string(weight_name))};
  switch (format.kind) {
    case QuantKind::kPlain:
      break;
    case QuantKind::kAffine:
      parts.push_back(claims.claim(module + ".scales"));
      parts.push_back(claims.claim(module + ".biases"));
      break;
  }
  return parts;
}

}  // namespace moeflux
