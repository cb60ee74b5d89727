// Permissions of written files.
#pragma once

#include <cstdint>

namespace moeflux {

/// Prompts, and states that were made of them, are their user's alone; other output is what the
/// process's umask says.
enum class FileAccess : uint8_t { kOrdinary, kPrivate };

}  // namespace moeflux
