#include "engine/cache_types.h"

#include "base/format.h"

namespace moeflux {

std::string_view cache_type_name(DType type) { return type == DType::kF16 ? "f16" : "f32"; }

Result<DType> parse_cache_type(std::string_view name) {
  if (name == "f32") return DType::kF32;
  if (name == "f16") return DType::kF16;
  return make_error(ErrorCode::kInvalidArgument, "cache type {}, expected f32 or f16", name);
}

Result<CacheTypes> cache_types_for(const Device& device, const EngineOptions& options) {
  const CacheTypes types{options.cache_type_k.value_or(device.preferred_cache_type()),
                         options.cache_type_v.value_or(device.preferred_cache_type())};
  const bool has_f16 = types.keys == DType::kF16 || types.values == DType::kF16;
  if (has_f16 && !device.takes_narrow_cache()) {
    return make_error(ErrorCode::kUnsupported,
                      "keys and values in f16: {} keeps them in f32 (see --cache-type-k)",
                      device.name());
  }
  return types;
}

}  // namespace moeflux
