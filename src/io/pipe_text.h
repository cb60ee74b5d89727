// Text that may come from a pipe.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace moeflux {

/// The bytes of a pipe up to its end, as shells have one in place of <(command), or of a whole
/// file. Fails with kResourceExhausted beyond `bytes_max`.
Result<std::string> read_text_file_or_pipe(const std::string& path, uint64_t bytes_max);

}  // namespace moeflux
