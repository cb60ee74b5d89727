#include "model/quant_config.h"

#include <algorithm>
#include <string>

#include "base/format.h"
#include "model/stored_formats.h"
#include "quant/formats/affine.h"

namespace moeflux {
namespace {

Result<ModuleQuant> read_module(const Json& object, const std::string& where) {
  Config fields(object, where);
  fields.expect_string("mode", "affine");
  ModuleQuant quant;
  quant.bits = static_cast<int>(fields.int_or("bits", 4, {1, 64}));
  quant.group_size = static_cast<int>(fields.int_or("group_size", 64, {1, 4096}));
  if (!affine::is_valid_bits(quant.bits) || !affine::is_valid_group(quant.group_size)) {
    fields.fail(ErrorCode::kUnsupported,
                formatted("bits {} with group_size {}; supported are bits 2, 3, 4, 5, 6, 8 and "
                          "groups of 32, 64, 128",
                          quant.bits, quant.group_size));
  }
  MF_RETURN_IF_ERROR(fields.status());
  return quant;
}

}  // namespace

std::string ModuleQuant::to_string() const { return formatted("affine-{}/{}", bits, group_size); }

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
  if (const auto method = section->find("quant_method"); method != section->end()) {
    const auto formats = stored_formats();
    const bool is_known =
        method->is_string() && std::any_of(formats.begin(), formats.end(), [&](const auto* stored) {
          return stored->quant_method == method->get<std::string>();
        });
    if (is_known) return result;  // each module's tensors say the rest
    return make_error(ErrorCode::kUnsupported,
                      "{}: quant_method {} is not supported; MLX affine groups and plain "
                      "bf16, f16, f32 weights are",
                      name, json_excerpt(*method));
  }
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
