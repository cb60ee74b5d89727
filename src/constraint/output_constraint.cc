#include "constraint/output_constraint.h"

#include <cctype>
#include <string_view>

#include "base/format.h"

namespace moeflux {
namespace {

// Whether a line defines a rule as GBNF does: `name ::= `.
bool is_gbnf_rule(std::string_view line) {
  const size_t sign = line.find("::=");
  if (sign == std::string_view::npos) return false;
  std::string_view name = line.substr(0, sign);
  while (!name.empty() && std::isspace(static_cast<unsigned char>(name.back())) != 0) {
    name.remove_suffix(1);
  }
  while (!name.empty() && std::isspace(static_cast<unsigned char>(name.front())) != 0) {
    name.remove_prefix(1);
  }
  if (name.empty()) return false;
  for (const char c : name) {
    const bool is_name = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
    if (!is_name) return false;
  }
  return true;
}

}  // namespace

Status check_dialect(const OutputConstraint& constraint) {
  if (constraint.kind != ConstraintKind::kLark) return {};
  std::string_view rest = constraint.text;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    if (is_gbnf_rule(rest.substr(0, end))) {
      return make_error(ErrorCode::kUnsupported,
                        "{}: the grammar is GBNF, expected llguidance's Lark (`start: rule`, "
                        "`rule: \"text\" | /regex/`), a JSON schema or a regular expression",
                        constraint.source);
    }
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return {};
}

}  // namespace moeflux
