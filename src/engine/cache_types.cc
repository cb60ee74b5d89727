#include "engine/cache_types.h"

#include "base/format.h"

namespace moeflux {

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
    const Status has_state = model.layers[i].mixer->has_state(types);
    if (!has_state.ok()) {
      return has_state.error().with_context(
          formatted("--cache-type-k, --cache-type-v: layer {}", i));
    }
  }
  return types;
}

}  // namespace moeflux
