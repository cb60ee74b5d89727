#include "base/units.h"

#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "base/format.h"

namespace moeflux {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr std::array<Unit, 14> kUnits = {{{"", 1.0},
                                          {"b", 1.0},
                                          {"k", 0x1p10},
                                          {"kb", 1e3},
                                          {"kib", 0x1p10},
                                          {"m", 0x1p20},
                                          {"mb", 1e6},
                                          {"mib", 0x1p20},
                                          {"g", 0x1p30},
                                          {"gb", 1e9},
                                          {"gib", 0x1p30},
                                          {"t", 0x1p40},
                                          {"tb", 1e12},
                                          {"tib", 0x1p40}}};

}  // namespace

Result<uint64_t> parse_bytes(std::string_view text) {
  const auto fail = [&] {
    return make_error(ErrorCode::kInvalidArgument,
                      "size '{}' is not a number with an optional unit (like 4096, 64MiB or 1.5G)",
                      text);
  };
  size_t digits = 0;
  int points = 0;
  while (digits < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[digits])) != 0 || text[digits] == '.')) {
    points += text[digits] == '.' ? 1 : 0;
    ++digits;
  }
  if (digits == 0 || digits > 24 || points > 1 || text[0] == '.') return fail();
  std::string unit;
  for (const char c : text.substr(digits)) {
    unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  const double number = std::strtod(std::string(text.substr(0, digits)).c_str(), nullptr);
  for (const Unit& known : kUnits) {
    if (known.name != unit) continue;
    const double bytes = std::floor(number * known.bytes);
    if (bytes >= 0x1p63) return fail();
    return static_cast<uint64_t>(bytes);
  }
  return fail();
}

std::string format_bytes(uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return formatted("{} B", bytes);
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kNames.size()) {
    value /= 1024.0;
    ++unit;
  }
  return formatted("{:.{}f} {}", value, value < 10.0 ? 2 : 1, kNames[unit]);
}

}  // namespace moeflux
