#include "load/python_json.h"

#include <array>

namespace moeflux {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"-Infinity", "Infinity", "NaN"};

/// The name that the text begins with, or empty.
std::string_view leading_name(std::string_view text) {
  for (const std::string_view name : kNames) {
    if (text.starts_with(name)) return name;
  }
  return {};
}

/// Characters of a string, from its first quote to its last one.
size_t string_length(std::string_view text) {
  size_t end = 1;
  while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
  return end < text.size() ? end + 1 : text.size();
}

}  // namespace

std::string with_named_floats(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::string_view name = leading_name(text);
    size_t count = 1;
    if (!name.empty()) {
      count = name.size();
      out += R"({"__float__": ")";
      out += name;
      out += R"("})";
    } else {
      if (text.front() == '"') count = string_length(text);
      out += text.substr(0, count);
    }
    text.remove_prefix(count);
  }
  return out;
}

}  // namespace moeflux
