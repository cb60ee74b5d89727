// A bounded file of lines to which several processes may add at once: what people typed. Its user's
// alone, like all that is made of prompts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moeflux {

struct LineLogLimits {
  size_t lines_max = 1000;       // that read_lines() gives
  uint64_t bytes_max = 1 << 20;  // beyond, the older half goes
};

/// The last lines, oldest first; none where there is no file. A partial line that a killed process
/// left is not counted. Fails with kIo, or kInvalidArgument for what is no regular file.
Result<std::vector<std::string>> read_lines(const std::string& path, const LineLogLimits& limits);

/// Adds a line, which holds no line end, as a whole: neither another process nor a full disk leaves
/// half of it. The file gets mode 0600, whatever it had. Never waits long for another process:
/// fails with kFailedPrecondition where one keeps the file locked, with kResourceExhausted for a
/// line of more than a quarter of the limit, and as read_lines().
Status append_line(const std::string& path, std::string_view line, const LineLogLimits& limits);

}  // namespace moeflux
