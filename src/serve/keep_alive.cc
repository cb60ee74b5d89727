#include "serve/keep_alive.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

namespace moeflux::serve {
namespace {

// More than any server runs; clocks still add it.
constexpr double kSecondsMax = 10.0 * 365 * 24 * 3600;

KeepAlive seconds_of(double seconds) {
  if (!(seconds >= 0) || seconds > kSecondsMax) return KeepAlive(-1);
  return KeepAlive(static_cast<int64_t>(seconds * 1e9));
}

std::optional<double> unit_seconds(std::string_view unit) {
  static constexpr std::array<std::pair<std::string_view, double>, 8> kUnits = {{{"ns", 1e-9},
                                                                                 {"us", 1e-6},
                                                                                 {"\u00b5s", 1e-6},
                                                                                 {"\u03bcs", 1e-6},
                                                                                 {"ms", 1e-3},
                                                                                 {"s", 1.0},
                                                                                 {"m", 60.0},
                                                                                 {"h", 3600.0}}};
  for (const auto& [name, seconds] : kUnits) {
    if (name == unit) return seconds;
  }
  return std::nullopt;
}

}  // namespace

std::optional<KeepAlive> parse_go_time(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  if (text == "0") return KeepAlive(0);
  double seconds = 0;
  bool is_any = false;
  while (!text.empty()) {
    double number = 0;
    double place = 0;  // of the digit at hand, behind the point
    size_t digits = 0;
    for (; !text.empty() && text.find_first_of(".0123456789") == 0; text.remove_prefix(1)) {
      if (text.front() == '.') {
        if (place > 0) return std::nullopt;
        place = 1;
        continue;
      }
      ++digits;
      const int digit = text.front() - '0';
      if (place > 0) {
        place /= 10;
        number += digit * place;
      } else {
        number = number * 10 + digit;
      }
    }
    const size_t end = std::min(text.find_first_of(".0123456789"), text.size());
    const auto unit = unit_seconds(text.substr(0, end));
    if (digits == 0 || !unit) return std::nullopt;
    seconds += number * *unit;
    text.remove_prefix(end);
    is_any = true;
  }
  if (!is_any) return std::nullopt;
  return is_negative && seconds > 0 ? KeepAlive(-1) : seconds_of(seconds);
}

std::optional<KeepAlive> parse_keep_alive(std::string_view text) {
  if (const auto time = parse_go_time(text)) return time;
  return parse_go_time(std::string(text) + "s");
}

std::optional<KeepAlive> read_keep_alive(const Json& value) {
  if (value.is_number()) return seconds_of(value.get<double>());
  if (!value.is_string()) return std::nullopt;
  return parse_go_time(value.get_ref<const std::string&>());
}

}  // namespace moeflux::serve
