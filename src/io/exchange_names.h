// Exchanging two names in one step: what differs between Linux and macOS.
#pragma once

#include <string>

namespace moeflux {

/// 0, or the errno; nothing has changed then.
int exchange_names(const std::string& a, const std::string& b);

}  // namespace moeflux
