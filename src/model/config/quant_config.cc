#include "model/config/quant_config.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/format.h"
#include "model/config/config.h"
#include "quant/formats/affine.h"
#include "quant/formats/tensor_formats.h"

namespace moeflux {
namespace {

struct Mode {
  std::string_view name;
  ModuleQuant usual;
};
constexpr std::array<Mode, 4> kModes = {{{"affine", {4, 64, QuantMode::kAffine}},
                                         {"mxfp4", {4, 32, QuantMode::kMxfp4}},
                                         {"mxfp8", {8, 32, QuantMode::kMxfp8}},
                                         {"nvfp4", {4, 16, QuantMode::kNvfp4}}}};

void check(Config& fields, const ModuleQuant& quant, const Mode& mode) {
  if (quant.mode != QuantMode::kAffine) {
    if (quant == mode.usual) return;
    fields.fail(
        ErrorCode::kUnsupported,
        formatted("mode {} with bits {} and group_size {}; it has {} in groups of {}", mode.name,
                  quant.bits, quant.group_size, mode.usual.bits, mode.usual.group_size));
  } else if (!affine::is_valid_bits(quant.bits) || !affine::is_valid_group(quant.group_size)) {
    fields.fail(ErrorCode::kUnsupported,
                formatted("bits {} with group_size {}; supported are bits 2, 3, 4, 5, 6, 8 and "
                          "groups of 32, 64, 128",
                          quant.bits, quant.group_size));
  }
}

Result<ModuleQuant> read_module(const Json& object, const std::string& where) {
  Config fields(object, where);
  const std::string name = fields.string_or("mode", "affine");
  const auto mode = std::find_if(kModes.begin(), kModes.end(),
                                 [&](const Mode& known) { return known.name == name; });
  if (mode == kModes.end()) {
    return make_error(ErrorCode::kUnsupported,
                      "{}: mode is \"{}\"; supported are affine, mxfp4, mxfp8 and nvfp4", where,
                      name);
  }
  ModuleQuant quant = mode->usual;
  quant.bits = static_cast<int>(fields.int_or("bits", quant.bits, {1, 64}));
  quant.group_size = static_cast<int>(fields.int_or("group_size", quant.group_size, {1, 4096}));
  check(fields, quant, *mode);
  MF_RETURN_IF_ERROR(fields.status());
  return quant;
}

// DeepSeek-V4's config.json has it beside the section.
Status read_experts(const Config& config, QuantRule& rule) {
  const Json* experts = config.find("expert_dtype");
  if (rule.method != "fp8" || experts == nullptr || experts->is_null()) return {};
  if (*experts != "fp4" && *experts != "fp8") {
    return make_error(ErrorCode::kUnsupported,
                      "config.json: expert_dtype {} is not supported; fp4 and fp8 are",
                      json_excerpt(*experts));
  }
  rule.experts = experts->get<std::string>();
  return {};
}

}  // namespace

QuantFormat ModuleQuant::format(DType scales) const {
  switch (mode) {
    case QuantMode::kAffine:
      return QuantFormat::affine(bits, group_size, scales);
    case QuantMode::kMxfp4:
      return QuantFormat::of(mxfp4_format);
    case QuantMode::kMxfp8:
      return fp8_of(DType::kF8E8M0, 1, 32);
    case QuantMode::kNvfp4:
      return nvfp4_of(OuterScale::kNone);
  }
  __builtin_unreachable();
}

std::string ModuleQuant::to_string() const { return format(DType::kBf16).to_string(); }

Result<QuantConfig> QuantConfig::read(const Config& config) {
  QuantConfig result;
  const Json* section = config.find("quantization");
  std::string name = "config.json: quantization";
  if (section == nullptr) {
    section = config.find("quantization_config");
    name = "config.json: quantization_config";
  }
  if (section == nullptr) return result;
  if (!section->is_object()) {
    return make_error(ErrorCode::kInvalidArgument, "{} is {}, expected an object", name,
                      json_excerpt(*section));
  }
  if (section->contains("quant_method")) {
    MF_ASSIGN_OR_RETURN(result.rule_, QuantRule::read(Config(*section, name)));
    MF_RETURN_IF_ERROR(read_experts(config, result.rule_));
    return result;
  }
  result.rule_.method = "mlx";
  MF_ASSIGN_OR_RETURN(result.global_, read_module(*section, name));
  for (const auto& [key, value] : section->items()) {
    if (key == "bits" || key == "group_size" || key == "mode") continue;
    if (value.is_object()) {
      MF_ASSIGN_OR_RETURN(const ModuleQuant quant, read_module(value, name + ": " + key));
      result.overrides_[key] = quant;
    } else if (value.is_boolean()) {
      if (!value.get<bool>()) result.overrides_[key] = std::nullopt;
    } else {
      return make_error(ErrorCode::kInvalidArgument,
                        "{}: {} is {}, expected an object, true or false", name, key,
                        json_excerpt(value));
    }
  }
  return result;
}

std::optional<ModuleQuant> QuantConfig::lookup(std::string_view module) const {
  const auto found = overrides_.find(module);
  return found == overrides_.end() ? global_ : found->second;
}

}  // namespace moeflux
