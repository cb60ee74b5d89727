// Text that a user names: a file, a pipe or standard input.
#pragma once

#include <string>

#include "base/result.h"

namespace moeflux {

/// The bytes of a file or pipe, or of standard input for "-". At most 1 GiB.
Result<std::string> read_text_input(const std::string& path);

}  // namespace moeflux
