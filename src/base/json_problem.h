// The reason why a text is not JSON, for every reader of JSON.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moeflux {

/// "not valid JSON at byte 7: unexpected ','". `told` is the message of nlohmann's exception, of
/// which the reason is kept and quotations of the text are not. Never fails.
std::string json_problem(size_t position, std::string_view told);

}  // namespace moeflux
