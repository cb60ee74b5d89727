// The name of an owner who is known by a secret.
#pragma once

#include <string>
#include <string_view>

namespace moeflux {

/// Sixteen lower-case hexadecimal digits that do not tell the secret; who can read them can try
/// secrets out on them.
std::string owner_name(std::string_view secret);

}  // namespace moeflux
