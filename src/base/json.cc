#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "base/format.h"

namespace moeflux {
namespace {

/// Walks a text without building anything and stops at the first thing wrong with it. A parser
/// callback would do the same in one pass, but with one nlohmann looks at all values of an object
/// again whenever one of them ends: minutes for the tensor list of a large checkpoint.
class Inspector final : public nlohmann::json_sax<Json> {
 public:
  const std::string& problem() const { return problem_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override {
    open_objects_.emplace_back();
    return enter();
  }
  bool key(string_t& name) override {
    if (open_objects_.back().insert(name).second) return true;
    problem_ = "key " + json_excerpt(Json(name)) + " appears twice";
    return false;
  }
  bool end_object() override {
    open_objects_.pop_back();
    return leave();
  }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    problem_ = formatted("not valid JSON at byte {}", position);
    return false;
  }

 private:
  static constexpr int kDepthMax = 128;

  bool enter() {
    if (++depth_ <= kDepthMax) return true;
    problem_ = formatted("nested deeper than {}", kDepthMax);
    return false;
  }
  bool leave() {
    --depth_;
    return true;
  }

  std::vector<std::set<std::string>> open_objects_;
  int depth_ = 0;
  std::string problem_;
};

template <typename AnyJson>
Result<AnyJson> parse_checked(std::string_view text, std::string_view what) {
  Inspector inspector;
  if (!Json::sax_parse(text, &inspector)) {
    return make_error(ErrorCode::kCorruption, "{}: {}", what, inspector.problem());
  }
  AnyJson parsed = AnyJson::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  MF_CHECK(!parsed.is_discarded());  // the same parser has just accepted it
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
