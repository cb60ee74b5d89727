// Times as people and programs write them.
#pragma once

#include <chrono>
#include <string>

namespace moeflux::serve {

/// "2026-11-25T01:13:05.123456Z"
std::string utc_text(std::chrono::system_clock::time_point time);

}  // namespace moeflux::serve
