#include "base/json_problem.h"

#include "base/format.h"

namespace moeflux {

// Messages are "[json.exception.parse_error.101] parse error at ...: syntax error while parsing
// value - REASON; last read: '...'; expected ...", or name a number that no double holds.
std::string json_problem(size_t position, std::string_view told) {
  constexpr std::string_view kBeforeReason = " - ";
  std::string problem = formatted("not valid JSON at byte {}", position);
  if (told.find("number overflow") != std::string_view::npos)
    return problem + ": a number too great";
  const size_t at = told.find(kBeforeReason);
  if (at == std::string_view::npos) return problem;
  told.remove_prefix(at + kBeforeReason.size());
  return formatted("{}: {}", problem, told.substr(0, told.find(';')));
}

}  // namespace moeflux
