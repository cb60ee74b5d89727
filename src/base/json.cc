#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/json_problem.h"

namespace moeflux {
namespace {

/// Builds a tree in one pass and stops at the first thing wrong with the text. nlohmann's own
/// callbacks would look at all values of an object again whenever one of them ends, and it does not
/// say whether a key is there twice.
template <typename AnyJson>
class Builder final : public nlohmann::json_sax<AnyJson> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  AnyJson take() { return std::move(root_); }
  ErrorCode code() const { return code_; }
  const std::string& problem() const { return problem_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(typename AnyJson::binary_t&) override { return fail("binary data"); }
  bool start_object(size_t) override { return enter(AnyJson::value_t::object); }
  bool key(std::string& name) override {
    auto& object = *open_.back()->template get_ptr<typename AnyJson::object_t*>();
    const auto [entry, is_new] = object.emplace(std::move(name), nullptr);
    if (!is_new) return fail("key " + json_excerpt(Json(entry->first)) + " appears twice");
    value_ = &entry->second;
    return true;
  }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return enter(AnyJson::value_t::array); }
  bool end_array() override { return leave(); }
  bool parse_error(size_t position, const std::string&,
                   const typename AnyJson::exception& error) override {
    return fail(json_problem(position, error.what()));
  }

 private:
  static constexpr size_t kDepthMax = 128;
  static constexpr size_t kValuesBetweenQuestions = 4096;

  bool fail(std::string problem, ErrorCode code = ErrorCode::kCorruption) {
    problem_ = std::move(problem);
    code_ = code;
    return false;
  }

  /// Where the next value belongs, or null after a failure. It stays there until the array or
  /// object that holds it grows, so not before all within it is read.
  template <typename Value>
  AnyJson* place(Value&& value) {
    if (++values_ > limits_.values) {
      fail(formatted("over {} values", limits_.values), ErrorCode::kResourceExhausted);
      return nullptr;
    }
    if (values_ % kValuesBetweenQuestions == 0 && limits_.is_given_up && limits_.is_given_up()) {
      fail("given up", ErrorCode::kCancelled);
      return nullptr;
    }
    if (!open_.empty() && open_.back()->is_array()) {
      auto& array = *open_.back()->template get_ptr<typename AnyJson::array_t*>();
      return &array.emplace_back(std::forward<Value>(value));
    }
    AnyJson& at = open_.empty() ? root_ : *value_;
    at = AnyJson(std::forward<Value>(value));
    return &at;
  }
  template <typename Value>
  bool add(Value&& value) {
    return place(std::forward<Value>(value)) != nullptr;
  }
  bool enter(typename AnyJson::value_t kind) {
    if (open_.size() >= kDepthMax) return fail(formatted("nested deeper than {}", kDepthMax));
    AnyJson* const at = place(kind);
    if (at == nullptr) return false;
    open_.push_back(at);
    return true;
  }
  bool leave() {
    open_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  AnyJson root_;
  std::vector<AnyJson*> open_;  // arrays and objects, each within the one before
  AnyJson* value_ = nullptr;    // of the key that was read last
  size_t values_ = 0;
  ErrorCode code_ = ErrorCode::kCorruption;
  std::string problem_;
};

template <typename AnyJson>
Result<AnyJson> parse_checked(std::string_view text, std::string_view what,
                              const JsonLimits& limits) {
  Builder<AnyJson> builder(limits);
  if (!AnyJson::sax_parse(text, &builder)) {
    return make_error(builder.code(), "{}: {}", what, builder.problem());
  }
  return builder.take();
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view what, const JsonLimits& limits) {
  return parse_checked<Json>(text, what, limits);
}

Result<SortedJson> parse_sorted_json(std::string_view text, std::string_view what) {
  return parse_checked<SortedJson>(text, what, {});
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
