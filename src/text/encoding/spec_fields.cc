// Lookups that never throw: nlohmann's own accessors do on a wrong type.
#include "text/encoding/spec_fields.h"

#include "base/format.h"
#include "base/json.h"

namespace moeflux {

const Json& spec_field(const Json& spec, std::string_view key) {
  static const Json kNull;
  if (!spec.is_object()) return kNull;
  const auto it = spec.find(std::string(key));
  return it == spec.end() ? kNull : *it;
}

Result<std::string> spec_type(const Json& spec, std::string_view what) {
  const Json& type = spec_field(spec, "type");
  if (type.is_string()) return type.get<std::string>();
  return make_error(ErrorCode::kUnsupported, "{} is {}, expected an object with a type", what,
                    json_excerpt(spec));
}

Result<bool> spec_bool(const Json& spec, std::string_view key, bool fallback,
                       std::string_view what) {
  const Json& value = spec_field(spec, key);
  if (value.is_null()) return fallback;
  if (value.is_boolean()) return value.get<bool>();
  return make_error(ErrorCode::kCorruption, "{} {} is {}, expected true or false", what, key,
                    json_excerpt(value));
}

Result<const Json*> spec_list(const Json& spec, std::string_view key, std::string_view what) {
  const Json& value = spec_field(spec, key);
  if (value.is_array()) return &value;
  return make_error(ErrorCode::kCorruption, "{} {} is {}, expected an array", what, key,
                    json_excerpt(value));
}

}  // namespace moeflux
