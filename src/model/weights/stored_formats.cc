#include "model/weights/stored_formats.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/format.h"
#include "quant/formats/tensor_formats.h"

namespace moeflux {
namespace {

// Bounds what read_ints() reads: more columns than any matrix has.
constexpr uint64_t kSmallBytesMax = uint64_t{1} << 27;

/// The packed widths tell bits and group size.
std::optional<QuantFormat> find_affine(TensorClaims& claims, const StoredModule& found,
                                       const Shape& shape) {
  const std::string& module = found.name;
  const TensorEntry& codes = *found.parts.codes.entry;
  const TensorEntry& scales = *found.parts.scales.entry;
  const TensorEntry* biases = found.parts.offsets.entry;
  if (biases == nullptr || codes.dtype != DType::kU32) {
    claims.fail(make_error(ErrorCode::kUnsupported,
                           "module {} has {} scales, {} and weights of dtype {}; MLX affine groups "
                           "are U32 weights, scales and biases, its other modes have U8 scales",
                           module, dtype_name(scales.dtype),
                           biases == nullptr ? "no biases" : "biases", dtype_name(codes.dtype)));
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
                         "tensor {} has dtype {}, supported for weights without scales are F32, "
                         "F16 and BF16",
                         name, entry->type_name()));
  return std::nullopt;
}

/// A reader's last line of defence: parts are as large as the format's, once for each matrix. A
/// scale that a matrix has once may be there twice, for the halves of fused matrices.
Status check_sizes(const StoredModule& found, const Shape& shape) {
  const int rank = shape.rank();
  const Parts<uint64_t> one = part_bytes(found.format, shape[rank - 2], shape[rank - 1]);
  const auto matrices =
      static_cast<uint64_t>(shape.num_elements() / (shape[rank - 2] * shape[rank - 1]));
  for (const PartRole role : kPartRoles) {
    const TensorEntry* entry = found.parts[role].entry;
    const uint64_t expected = one[role] * matrices;
    const uint64_t bytes = entry == nullptr ? 0 : entry->size_bytes;
    const bool is_pair = rank > 2 && bytes == 2 * expected && is_one_of_matrix(found.format, role);
    if (bytes == expected || is_pair) continue;
    return make_error(ErrorCode::kCorruption, "module {}: {} has {} bytes, {} {} means {}",
                      found.name, found.parts[role].name, bytes, found.format.to_string(),
                      shape.to_string(), expected);
  }
  return {};
}

/// A module in one of the registered spellings; the first value is false when it is in none.
std::pair<bool, std::optional<StoredModule>> find_registered(TensorClaims& claims,
                                                             const QuantConfig& quant,
                                                             const ModuleTensors& tensors,
                                                             const Shape& shape) {
  for (const StoredFormat* stored : stored_formats()) {
    if (!stored->is_spelled(tensors)) continue;
    Result<StoredModule> found = stored->read(tensors, quant, shape);
    const Status fits = found.ok() ? check_sizes(*found, shape) : Status(found.error());
    if (fits.ok()) return {true, std::move(found).value()};
    claims.fail(fits.error());
    return {true, std::nullopt};
  }
  return {false, std::nullopt};
}

}  // namespace

std::string ModuleTensors::name_of(std::string_view part) const {
  if (part == "weight") return module_ + std::string(weight_name_);
  return formatted("{}{}{}", module_, weight_name_.empty() ? "_" : ".", part);
}

Result<std::vector<int64_t>> ModuleTensors::read_ints(std::string_view part) const {
  const TensorEntry* entry = find(part);
  const bool is_wide = entry != nullptr && entry->dtype == DType::kI64;
  if (entry == nullptr || !(is_wide || entry->dtype == DType::kI32) ||
      entry->size_bytes > kSmallBytesMax) {
    return mismatch(ErrorCode::kCorruption, {part}, "whole numbers of I32 or I64");
  }
  std::vector<std::byte> bytes(entry->size_bytes);
  const Status read = read_tensor(index_, *entry, bytes);
  if (!read.ok()) return read.error().with_context("tensor " + name_of(part));
  std::vector<int64_t> values(bytes.size() / (is_wide ? 8 : 4));
  for (size_t i = 0; i < values.size(); ++i) {
    if (is_wide) {
      std::memcpy(&values[i], bytes.data() + 8 * i, 8);
    } else {
      int32_t value;
      std::memcpy(&value, bytes.data() + 4 * i, 4);
      values[i] = value;
    }
  }
  return values;
}

Error ModuleTensors::mismatch(ErrorCode code, std::initializer_list<std::string_view> parts,
                              std::string_view expected) const {
  std::string found;
  for (const std::string_view part : parts) {
    const TensorEntry* entry = find(part);
    if (!found.empty()) found += ", ";
    found += entry == nullptr
                 ? formatted("no {}", part)
                 : formatted("{} {} {}", part, dtype_name(entry->dtype), entry->shape.to_string());
  }
  return make_error(code, "module {} has {}; expected {}", module_, found, expected);
}

Result<bool> maps_columns(const ModuleTensors& tensors, std::string_view part,
                          const QuantFormat& format, int64_t cols) {
  if (tensors.find(part) == nullptr) return false;
  const auto fails = [&](const std::string& expected) {
    return tensors.mismatch(ErrorCode::kCorruption, {part}, expected);
  };
  if (tensors.find(part)->shape != Shape{cols} || tensors.find(part)->dtype != DType::kI32) {
    return fails(formatted("I32 [{}]", cols));
  }
  MF_ASSIGN_OR_RETURN(const std::vector<int64_t> map, tensors.read_ints(part));
  if (std::all_of(map.begin(), map.end(), [](int64_t group) { return group == -1; })) return false;
  const int64_t width = format.group_size == 0 ? cols : format.group_size;
  const int64_t groups = (cols + width - 1) / width;
  bool is_mapped = false;
  for (size_t c = 0; c < map.size(); ++c) {
    if (map[c] < 0 || map[c] >= groups) {
      return fails(formatted("groups below {}, column {} has {}", groups, c, map[c]));
    }
    is_mapped = is_mapped || map[c] != static_cast<int64_t>(c) / width;
  }
  return is_mapped;
}

bool is_one_of_matrix(const QuantFormat& format, PartRole role) {
  return role == PartRole::kOuterScale ||
         (role == PartRole::kScales && format.kind == &fp8_format && format.group_rows == 0);
}

Shape with_matrix(const Shape& shape, int64_t rows, int64_t cols) {
  Shape result = shape;
  result.set(shape.rank() - 2, rows);
  result.set(shape.rank() - 1, cols);
  return result;
}

std::optional<std::string> find_codes(const TensorClaims& claims, const std::string& module,
                                      std::string_view weight_name) {
  const std::string own = module + std::string(weight_name);
  if (claims.has(own)) return own;
  for (const StoredFormat* stored : stored_formats()) {
    const std::string name =
        formatted("{}{}{}", module, weight_name.empty() ? "_" : ".", stored->codes);
    if (claims.has(name)) return name;
  }
  return std::nullopt;
}

std::string full_module_name(const TensorClaims& claims, const std::string& module,
                             std::string_view weight_name) {
  const std::string usual = module + std::string(weight_name);
  const std::string codes = find_codes(claims, module, weight_name).value_or(usual);
  const std::string full = claims.full_name(codes);
  return full.substr(0, full.size() - (codes.size() - module.size()));
}

Parts<std::string> affine_names(const std::string& module, std::string_view weight_name) {
  return {.codes = module + std::string(weight_name),
          .scales = module + ".scales",
          .offsets = module + ".biases"};
}

std::optional<StoredModule> find_module(TensorClaims& claims, const QuantConfig& quant,
                                        const std::string& module, std::string_view weight_name,
                                        const Shape& shape) {
  const Parts<std::string> names = affine_names(module, weight_name);
  StoredModule found{.name = module};
  found.parts.codes = {names.codes, claims.index().find(names.codes)};
  const TensorEntry* codes = found.parts.codes.entry;
  if (codes != nullptr && codes->format) return find_plain(claims, std::move(found), shape);
  const ModuleTensors tensors(claims.index(), module, weight_name);
  if (auto [is_registered, spelled] = find_registered(claims, quant, tensors, shape);
      is_registered) {
    return spelled;
  }
  if (codes == nullptr) {
    claims.fail_missing(names.codes);
    return std::nullopt;
  }
  const TensorEntry* scales = claims.index().find(names.scales);
  if (scales == nullptr) return find_plain(claims, std::move(found), shape);
  found.parts.scales = {names.scales, scales};
  found.parts.offsets = {names.offsets, claims.index().find(names.offsets)};
  const std::optional<QuantFormat> format = find_affine(claims, found, shape);
  if (!format) return std::nullopt;
  found.format = *format;
  const Status agrees = check_stated(quant, found);
  if (agrees.ok()) return found;
  claims.fail(agrees.error());
  return std::nullopt;
}

Status check_stated(const QuantConfig& quant, const StoredModule& module) {
  const std::optional<ModuleQuant> stated = quant.lookup(module.name);
  if (!stated || stated->format(module.format.dtype) == module.format) return {};
  if (module.format.is_affine() && stated->mode == QuantMode::kAffine) {
    return make_error(ErrorCode::kCorruption,
                      "module {} is stored with {} bits in groups of {}, config.json says {} bits "
                      "in groups of {}",
                      module.name, module.format.bits, module.format.group_size, stated->bits,
                      stated->group_size);
  }
  return make_error(ErrorCode::kCorruption, "module {} is stored as {}, config.json says {}",
                    module.name, module.format.to_string(), stated->to_string());
}

Status check_experts(const QuantConfig& quant, const StoredModule& module) {
  const std::string& stated = quant.rule().experts;
  const FormatTraits* kind = stated == "fp4" ? &mxfp4_format : &fp8_format;
  if (stated.empty() || module.format.kind == kind) return {};
  return make_error(ErrorCode::kCorruption,
                    "module {} is stored as {}, config.json's expert_dtype is {}", module.name,
                    module.format.to_string(), stated);
}

void claim_parts(TensorClaims& claims, const StoredModule& module) {
  for (const PartRole role : kPartRoles) {
    if (module.parts[role].entry != nullptr) claims.claim(module.parts[role].name);
  }
  for (const std::string& name : module.others) claims.claim(name);
}

}  // namespace moeflux
