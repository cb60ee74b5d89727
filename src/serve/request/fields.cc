#include "serve/request/fields.h"

#include <utility>

#include "base/format.h"

namespace moeflux::serve {

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (object.is_object()) return;
  problem_ = bad_field(path_, formatted("{} is {}, expected an object",
                                        path_.empty() ? "the body" : path_, json_excerpt(object)));
}

Fields::Fields(const Json& object, const FieldList& list, std::string path)
    : Fields(object, std::move(path)) {
  list_ = &list;
  if (!object.is_object()) return;
  for (const auto& [name, value] : object.items()) {
    const ListedField* field = list.find(name);
    if (field == nullptr || field->use != FieldUse::kRefused) continue;
    if (!FieldList::asks(*field, value)) continue;
    fail(unsupported_field(full_name(name),
                           formatted("{} is {}, which is not offered: {}", full_name(name),
                                     json_excerpt(value), field->note)));
  }
}

const Json* Fields::find(std::string_view name) const {
  if (!object_.is_object()) return nullptr;
  if (list_ != nullptr) {
    const ListedField* field = list_->find(name);
    if (field == nullptr || field->use != FieldUse::kServed) return nullptr;
  }
  const auto found = object_.find(name);
  if (found == object_.end()) return nullptr;
  asked_.emplace(name);
  return found->is_null() ? nullptr : &*found;
}

std::vector<std::string> Fields::ignored() const {
  constexpr size_t kNamesMax = 32;
  constexpr size_t kNameBytesMax = 64;
  std::vector<std::string> names;
  if (!object_.is_object()) return names;
  for (const auto& [name, value] : object_.items()) {
    if (value.is_null() || asked_.contains(name)) continue;
    const ListedField* field = list_ == nullptr ? nullptr : list_->find(name);
    if (field != nullptr && field->use != FieldUse::kServed) continue;
    names.push_back(full_name(name).substr(0, kNameBytesMax));
    if (names.size() == kNamesMax) break;
  }
  return names;
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  fail(name, *value, "true or false");
  return std::nullopt;
}

std::optional<int64_t> Fields::integer(std::string_view name, Range<int64_t> range) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const Result<int64_t> number = json_int(*value, full_name(name));
  if (number.ok() && *number >= range.low && *number <= range.high) return *number;
  fail(name, *value, formatted("an integer from {} to {}", range.low, range.high));
  return std::nullopt;
}

std::optional<double> Fields::number(std::string_view name, Range<double> range) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const double number = value->get<double>();
    if (number >= range.low && number <= range.high) return number;
  }
  fail(name, *value, formatted("a number from {} to {}", range.low, range.high));
  return std::nullopt;
}

std::optional<std::string> Fields::text(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  fail(name, *value, "a string");
  return std::nullopt;
}

const Json* Fields::array(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr || value->is_array()) return value;
  fail(name, *value, "an array");
  return nullptr;
}

const Json* Fields::object(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr || value->is_object()) return value;
  fail(name, *value, "an object");
  return nullptr;
}

std::optional<std::vector<std::string>> Fields::texts(std::string_view name, size_t count_max) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return std::vector{value->get<std::string>()};
  std::vector<std::string> texts;
  if (value->is_array() && value->size() <= count_max) {
    for (const Json& text : *value) {
      if (text.is_string()) texts.push_back(text.get<std::string>());
    }
    if (texts.size() == value->size()) return texts;
  }
  fail(name, *value, formatted("a string or at most {} of them", count_max));
  return std::nullopt;
}

std::string Fields::full_name(std::string_view name) const {
  return path_.empty() ? std::string(name) : formatted("{}.{}", path_, name);
}

void Fields::fail(ApiError error) {
  if (!problem_) problem_ = std::move(error);
}

void Fields::fail(std::string_view name, const Json& found, std::string_view expected) {
  std::string param = full_name(name);
  std::string message = formatted("{} is {}, expected {}", param, json_excerpt(found), expected);
  fail(bad_field(std::move(param), std::move(message)));
}

}  // namespace moeflux::serve
