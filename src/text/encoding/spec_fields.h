// Typed access to the fields of tokenizer.json objects; errors name the field and what it held.
#pragma once

#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "base/result.h"

namespace moeflux {

/// The object's "type". Fails with kUnsupported when `spec` is null or something without one.
Result<std::string> spec_type(const Json& spec, std::string_view what);

/// A boolean field; absent or null means `fallback`.
Result<bool> spec_bool(const Json& spec, std::string_view key, bool fallback,
                       std::string_view what);

/// An array field, which must be there. The pointer lives as long as `spec`.
Result<const Json*> spec_list(const Json& spec, std::string_view key, std::string_view what);

/// The field, or a null value when absent or when `spec` is no object.
const Json& spec_field(const Json& spec, std::string_view key);

}  // namespace moeflux
