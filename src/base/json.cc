#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "base/format.h"

namespace moeflux {
namespace {

template <typename AnyJson>
Result<AnyJson> parse_checked(std::string_view text, std::string_view what) {
  constexpr int kDepthMax = 128;
  std::string problem;
  std::vector<std::set<std::string>> open_objects;
  int depth = 0;
  const auto watch = [&](int, typename AnyJson::parse_event_t event, AnyJson& value) {
    using Event = typename AnyJson::parse_event_t;
    if (event == Event::object_start) open_objects.emplace_back();
    if (event == Event::object_start || event == Event::array_start) {
      if (++depth > kDepthMax && problem.empty()) problem = "nested deeper than 128";
    }
    if (event == Event::object_end || event == Event::array_end) --depth;
    if (event == Event::object_end) open_objects.pop_back();
    if (event == Event::key && problem.empty()) {
      const auto& key = value.template get_ref<const std::string&>();
      if (!open_objects.back().insert(key).second) problem = "key '" + key + "' appears twice";
    }
    return problem.empty();  // a rejected value is dropped: a hostile file builds no tree
  };
  AnyJson parsed = AnyJson::parse(text, watch, /*allow_exceptions=*/false);
  if (!problem.empty()) return make_error(ErrorCode::kCorruption, "{}: {}", what, problem);
  if (parsed.is_discarded()) return make_error(ErrorCode::kCorruption, "{}: not valid JSON", what);
  return parsed;
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view what) {
  return parse_checked<Json>(text, what);
}

Result<SortedJson> parse_sorted_json(std::string_view text, std::string_view what) {
  return parse_checked<SortedJson>(text, what);
}

Result<int64_t> json_int(const Json& value, std::string_view what) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number <= static_cast<uint64_t>(INT64_MAX)) return static_cast<int64_t>(number);
  } else if (value.is_number_integer()) {
    return value.get<int64_t>();
  } else if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (std::abs(number) < 0x1p53 && std::floor(number) == number) {
      return static_cast<int64_t>(number);
    }
  }
  return make_error(ErrorCode::kInvalidArgument, "{} is {}, expected an integer", what,
                    json_excerpt(value));
}

std::string json_excerpt(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

}  // namespace moeflux
