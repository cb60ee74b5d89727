#include "model/stored_formats.h"

#include <algorithm>
#include <utility>

#include "base/format.h"

namespace moeflux {
namespace {

/// The packed widths tell bits and group size.
std::optional<QuantFormat> find_affine(TensorClaims& claims, const StoredModule& found,
                                       const Shape& shape) {
  const std::string& module = found.name;
  const TensorEntry& codes = *found.parts.codes.entry;
  const TensorEntry& scales = *found.parts.scales.entry;
  const TensorEntry* biases = found.parts.offsets.entry;
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

/// A factor of each matrix beside rows of blocks, M.scale F32 [1] or [leading extent]. False when
/// there is one that does not fit.
bool find_outer_scale(TensorClaims& claims, StoredModule& found, const Shape& shape) {
  if (!found.parts.codes.entry->format) return true;
  const std::string name = found.name + ".scale";
  const TensorEntry* scale = claims.index().find(name);
  if (scale == nullptr) return true;
  const int64_t matrices = shape.rank() > 2 ? shape[0] : 1;
  if (scale->dtype != DType::kF32 || scale->shape.num_elements() != matrices) {
    claims.fail(make_error(ErrorCode::kCorruption, "tensor {} is {} {}, expected F32 [{}]", name,
                           scale->type_name(), scale->shape.to_string(), matrices));
    return false;
  }
  found.format = found.format.with_outer_scale();
  found.parts.outer_scale = {name, scale};
  return true;
}

std::optional<StoredModule> find_plain(TensorClaims& claims, StoredModule found,
                                       const Shape& shape) {
  const auto& [name, entry] = found.parts.codes;
  if (entry->shape != shape) {
    claims.fail(make_error(ErrorCode::kCorruption, "tensor {} has shape {}, config.json means {}",
                           name, entry->shape.to_string(), shape.to_string()));
    return std::nullopt;
  }
  found.format = entry->format ? *entry->format : QuantFormat::plain(entry->dtype);
  if (!find_outer_scale(claims, found, shape)) return std::nullopt;
  if (is_valid(found.format, shape.back())) return found;
  claims.fail(make_error(ErrorCode::kUnsupported,
                         "tensor {} has dtype {}, supported for weights are F32, F16, BF16 and "
                         "MLX affine groups",
                         name, entry->type_name()));
  return std::nullopt;
}

/// A module in one of the registered spellings; the first value is false when it is in none.
std::pair<bool, std::optional<StoredModule>> find_registered(TensorClaims& claims,
                                                             const std::string& module,
                                                             const Shape& shape) {
  for (const StoredFormat* stored : stored_formats()) {
    StoredModule found{.name = module};
    if (claims.index().find(module + std::string(stored->suffixes.codes)) == nullptr) continue;
    bool is_whole = true;
    for (const PartRole role : kPartRoles) {
      if (stored->suffixes[role].empty()) continue;
      std::string name = module + std::string(stored->suffixes[role]);
      const TensorEntry* entry = claims.index().find(name);
      if (entry == nullptr) claims.fail_missing(name);
      is_whole = is_whole && entry != nullptr;
      found.parts[role] = {std::move(name), entry};
    }
    if (!is_whole) return {true, std::nullopt};
    const Result<QuantFormat> format = stored->read(found, shape);
    if (!format.ok()) {
      claims.fail(format.error());
      return {true, std::nullopt};
    }
    found.format = *format;
    return {true, std::move(found)};
  }
  return {false, std::nullopt};
}

}  // namespace

Parts<std::string> affine_names(const std::string& module, std::string_view weight_name) {
  return {.codes = module + std::string(weight_name),
          .scales = module + ".scales",
          .offsets = module + ".biases"};
}

std::optional<StoredModule> find_module(TensorClaims& claims, const QuantConfig& quant,
                                        const std::string& module, std::string_view weight_name,
                                        const Shape& shape) {
  if (auto [is_registered, found] = find_registered(claims, module, shape); is_registered) {
    return found;
  }
  const Parts<std::string> names = affine_names(module, weight_name);
  StoredModule found{.name = module};
  found.parts.codes = {names.codes, claims.index().find(names.codes)};
  if (found.parts.codes.entry == nullptr) {
    claims.fail_missing(names.codes);
    return std::nullopt;
  }
  const TensorEntry* scales = claims.index().find(names.scales);
  if (scales == nullptr) return find_plain(claims, std::move(found), shape);
  found.parts.scales = {names.scales, scales};
  found.parts.offsets = {names.offsets, claims.index().find(names.offsets)};
  const std::optional<QuantFormat> format = find_affine(claims, found, shape);
  if (!format) return std::nullopt;
  const std::optional<ModuleQuant> stated = quant.lookup(module);
  if (stated && (stated->bits != format->bits || stated->group_size != format->group_size)) {
    claims.fail(make_error(ErrorCode::kCorruption,
                           "module {} is stored with {} bits in groups of {}, config.json says {} "
                           "bits in groups of {}",
                           module, format->bits, format->group_size, stated->bits,
                           stated->group_size));
    return std::nullopt;
  }
  found.format = *format;
  return found;
}

void claim_parts(TensorClaims& claims, const StoredModule& module) {
  for (const PartRole role : kPartRoles) {
    if (module.parts[role].entry != nullptr) claims.claim(module.parts[role].name);
  }
}

}  // namespace moeflux
