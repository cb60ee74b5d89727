#include "model/config/config.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "model/config/config_keys.h"

namespace moeflux {
namespace {

// The thinking part of a model that also speaks: a config like any other, but for what says how all
// weights are stored.
Json thinker_of(Json json) {
  const auto thinker = json.find("thinker_config");
  if (thinker == json.end() || !thinker->is_object()) return json;
  Json own = *thinker;
  for (const char* key : {"quantization", "quantization_config"}) {
    if (json.contains(key) && !own.contains(key)) own[key] = json[key];
  }
  return own;
}

// The text model of one that also sees or hears, under any of the names in use; the end where the
// config is flat.
Json::const_iterator text_of(const Json& config) {
  for (const char* key : {"text_config", "llm_config", "language_config"}) {
    if (const auto found = config.find(key); found != config.end()) return found;
  }
  return config.end();
}

}  // namespace

Config::Config(Json object, std::string path) : top_(std::move(object)), path_(std::move(path)) {}

Result<Config> Config::parse(std::string_view text) {
  MF_ASSIGN_OR_RETURN(Json json, parse_json(text, "config.json"));
  if (!json.is_object()) {
    return make_error(ErrorCode::kCorruption, "config.json: top level is {}, expected an object",
                      json.type_name());
  }
  Config config(thinker_of(std::move(json)), "config.json");
  if (const auto nested = text_of(config.top_); nested != config.top_.end()) {
    if (!nested->is_object()) {
      return make_error(ErrorCode::kCorruption, "config.json: {} is {}, expected an object",
                        nested.key(), nested->type_name());
    }
    config.text_ = *nested;
    // The head is the embedding if either says so: transformers 5 asks the wrapper, 4 asked the
    // text.
    constexpr const char* kTied = "tie_word_embeddings";
    if (config.top_.value(kTied, Json()) == true) config.text_[kTied] = true;
  }
  const Json* type = config.find("model_type");
  if (type == nullptr || !type->is_string()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "config.json: model_type is {}, expected the name of a model family",
                      type == nullptr ? "missing" : json_excerpt(*type));
  }
  config.model_type_ = type->get<std::string>();
  for (const Json* object : {&config.text_, &config.top_}) {
    if (!object->is_object()) continue;
    for (const auto& [key, value] : object->items()) {
      if (is_harmless_key(key)) config.ignore(key);
    }
  }
  return config;
}

std::vector<std::string> Config::model_types() const {
  std::vector<std::string> types;
  for (const Json* object : {&text_, &top_}) {
    const auto found = object->find("model_type");
    if (object->is_object() && found != object->end() && found->is_string()) {
      types.push_back(found->get<std::string>());
    }
  }
  return types;
}

std::vector<std::string> Config::architectures() const {
  std::vector<std::string> names;
  for (const Json* object : {&text_, &top_}) {
    if (!object->is_object() || !object->contains("architectures")) continue;
    for (const Json& name : (*object)["architectures"]) {
      if (name.is_string()) names.push_back(name.get<std::string>());
    }
  }
  return names;
}

bool Config::mentions(std::string_view key) const {
  const auto lists = [&](const Json& object) {
    return object.is_object() && object.contains(std::string(key));
  };
  return lists(text_) || lists(top_);
}

void Config::assume(std::string_view key, Json value) {
  Json& object = text_.is_object() ? text_ : top_;
  if (!has(key)) object[std::string(key)] = std::move(value);
}

const Json* Config::find(std::string_view key) const {
  for (const Json* object : {&text_, &top_}) {
    if (!object->is_object()) continue;
    const auto found = object->find(std::string(key));
    if (found != object->end() && !found->is_null()) return &*found;
  }
  return nullptr;
}

const Json* Config::take(std::string_view key) {
  read_.insert(std::string(key));
  return find(key);
}

bool Config::has(std::string_view key) const { return find(key) != nullptr; }

std::string Config::name_of(std::string_view key) const { return formatted("{}: {}", path_, key); }

void Config::fail(ErrorCode code, std::string message) {
  if (status_.ok()) status_ = make_error(code, "{}: {}", path_, message);
}

int64_t Config::require_int(std::string_view key, IntRange range) {
  const Json* value = take(key);
  if (value == nullptr) {
    fail(ErrorCode::kInvalidArgument, formatted("{} is missing", key));
    return range.min;
  }
  const Result<int64_t> number = json_int(*value, name_of(key));
  if (!number.ok()) {
    if (status_.ok()) status_ = number.error();
    return range.min;
  }
  if (*number < range.min || *number > range.max) {
    fail(ErrorCode::kInvalidArgument,
         formatted("{} is {}, expected {} to {}", key, *number, range.min, range.max));
    return range.min;
  }
  return *number;
}

int64_t Config::int_or(std::string_view key, int64_t fallback, IntRange range) {
  read_.insert(std::string(key));
  return has(key) ? require_int(key, range) : fallback;
}

double Config::require_number(std::string_view key, double min, double max) {
  const Json* value = take(key);
  if (value == nullptr || !value->is_number()) {
    fail(ErrorCode::kInvalidArgument,
         formatted("{} is {}, expected a number", key,
                   value == nullptr ? "missing" : json_excerpt(*value)));
    return min;
  }
  const auto number = value->get<double>();
  if (!(number >= min && number <= max)) {
    fail(ErrorCode::kInvalidArgument,
         formatted("{} is {}, expected {} to {}", key, number, min, max));
    return min;
  }
  return number;
}

double Config::number_or(std::string_view key, double fallback, double min, double max) {
  read_.insert(std::string(key));
  return has(key) ? require_number(key, min, max) : fallback;
}

bool Config::bool_or(std::string_view key, bool fallback) {
  const Json* value = take(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  fail(ErrorCode::kInvalidArgument,
       formatted("{} is {}, expected true or false", key, json_excerpt(*value)));
  return fallback;
}

std::string Config::string_or(std::string_view key, std::string_view fallback) {
  const Json* value = take(key);
  if (value == nullptr) return std::string(fallback);
  if (value->is_string()) return value->get<std::string>();
  fail(ErrorCode::kInvalidArgument,
       formatted("{} is {}, expected a string", key, json_excerpt(*value)));
  return std::string(fallback);
}

std::vector<std::string> Config::require_strings(std::string_view key) {
  std::vector<std::string> strings;
  const Json* value = take(key);
  bool valid = value != nullptr && value->is_array();
  if (valid) {
    for (const Json& item : *value) {
      valid = valid && item.is_string();
      if (valid) strings.push_back(item.get<std::string>());
    }
  }
  if (!valid) {
    fail(ErrorCode::kInvalidArgument,
         formatted("{} is {}, expected a list of strings", key,
                   value == nullptr ? "missing" : json_excerpt(*value)));
  }
  return strings;
}

std::vector<int64_t> Config::ints_or(std::string_view key, std::vector<int64_t> fallback) {
  const Json* value = take(key);
  if (value == nullptr) return fallback;
  std::vector<int64_t> numbers;
  bool valid = value->is_array();
  for (size_t i = 0; valid && i < value->size(); ++i) {
    const Result<int64_t> number = json_int((*value)[i], key);
    valid = number.ok();
    if (valid) numbers.push_back(*number);
  }
  if (valid) return numbers;
  fail(ErrorCode::kInvalidArgument,
       formatted("{} is {}, expected a list of integers", key, json_excerpt(*value)));
  return fallback;
}

Config Config::object(std::string_view key) {
  const Json* value = take(key);
  if (value != nullptr && !value->is_object()) {
    fail(ErrorCode::kInvalidArgument,
         formatted("{} is {}, expected an object", key, json_excerpt(*value)));
    value = nullptr;
  }
  return Config(value == nullptr ? Json::object() : *value, formatted("{}: {}", path_, key));
}

void Config::absorb(const Config& nested) {
  if (status_.ok()) status_ = nested.status_;
  const std::string own = path_ + ": ";
  const std::string path = nested.path_.starts_with(own) ? nested.path_.substr(own.size()) : "";
  for (UnreadKey& unread : nested.unread()) {
    unread.name = formatted("{}: {}", path, unread.name);
    unread_nested_[unread.name] = unread;
  }
}

void Config::expect_string(std::string_view key, std::string_view supported) {
  const std::string value = string_or(key, supported);
  if (value != supported) {
    fail(ErrorCode::kUnsupported,
         formatted("{} is \"{}\", only \"{}\" is supported", key, value, supported));
  }
}

void Config::expect_bool(std::string_view key, bool supported) {
  if (bool_or(key, supported) != supported) {
    fail(ErrorCode::kUnsupported,
         formatted("{} is {}, only {} is supported", key, !supported, supported));
  }
}

void Config::expect_absent(std::string_view key, std::string_view reason) {
  if (const Json* value = take(key); value != nullptr) {
    fail(ErrorCode::kUnsupported,
         formatted("{} is {}: {} is not supported here", key, json_excerpt(*value), reason));
  }
}

void Config::expect_number(std::string_view key, double supported) {
  const Json* value = take(key);
  if (value == nullptr || (value->is_number() && value->get<double>() == supported)) return;
  fail(ErrorCode::kUnsupported,
       formatted("{} is {}, only {} is supported", key, json_excerpt(*value), supported));
}

void Config::expect_present(std::string_view key) {
  if (!has(key)) fail(ErrorCode::kInvalidArgument, formatted("{} is missing", key));
}

std::vector<UnreadKey> Config::unread() const {
  std::vector<UnreadKey> keys;
  for (const auto& [name, nested] : unread_nested_) keys.push_back(nested);
  for (const Json* object : {&text_, &top_}) {
    if (!object->is_object()) continue;
    for (const auto& [key, value] : object->items()) {
      if (read_.contains(key) || find(key) != &value) continue;  // null, or said by text_config
      keys.push_back({key, key, value});
    }
  }
  return keys;
}

}  // namespace moeflux
