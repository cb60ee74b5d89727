// Letters of ASCII in either case, whatever the locale. All other bytes are themselves.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace moeflux {

constexpr char lower_case(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

inline std::string lower_case(std::string_view text) {
  std::string lowered(text);
  for (char& c : lowered) c = lower_case(c);
  return lowered;
}

inline bool equal_without_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower_case(x) == lower_case(y); });
}

}  // namespace moeflux
