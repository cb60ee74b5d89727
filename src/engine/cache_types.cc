#include "engine/cache_types.h"

#include "base/format.h"

namespace moeflux {
namespace {

// A layer has values of their own if its state depends on their type; f32 and f16 every layer has.
bool keeps_values(const MixerSpec& mixer, const CacheTypes& types) {
  const DType other = types.values == DType::kF32 ? DType::kF16 : DType::kF32;
  return mixer.state(types) != mixer.state({types.keys, other});
}

Status check_layer(const Device& device, const MixerSpec& mixer, const CacheTypes& types) {
  MF_RETURN_IF_ERROR(mixer.has_state(types));
  if (types.keys == types.values || device.takes_mixed_cache() || !keeps_values(mixer, types)) {
    return {};
  }
  return make_error(ErrorCode::kUnsupported,
                    "keys in {} and values in {}: {} takes both in one type, give both",
                    cache_type_name(types.keys), cache_type_name(types.values), device.name());
}

}  // namespace

std::string_view cache_type_name(DType type) {
  return type == DType::kI8 ? "q8_0" : type == DType::kF16 ? "f16" : "f32";
}

Result<DType> parse_cache_type(std::string_view name) {
  if (name == "f32") return DType::kF32;
  if (name == "f16") return DType::kF16;
  if (name == "q8_0") return DType::kI8;
  return make_error(ErrorCode::kInvalidArgument, "cache type {}, expected f32, f16 or q8_0", name);
}

Result<CacheTypes> cache_types_for(const Device& device, const ModelSpec& model,
                                   const EngineOptions& options) {
  const CacheTypes types{options.cache_type_k.value_or(device.preferred_cache_type()),
                         options.cache_type_v.value_or(device.preferred_cache_type())};
  for (const DType type : {types.keys, types.values}) {
    if (type == DType::kF32 || device.takes_narrow_cache()) continue;
    return make_error(ErrorCode::kUnsupported,
                      "keys and values in {}: {} keeps them in f32 (see --cache-type-k)",
                      cache_type_name(type), device.name());
  }
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const Status checked = check_layer(device, *model.layers[i].mixer, types);
    if (!checked.ok()) {
      return checked.error().with_context(formatted("--cache-type-k, --cache-type-v: layer {}", i));
    }
  }
  return types;
}

}  // namespace moeflux
