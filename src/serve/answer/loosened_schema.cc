#include "serve/answer/loosened_schema.h"

#include <charconv>
#include <string>
#include <utility>
#include <vector>

namespace moeflux::serve {
namespace {

constexpr std::string_view kMaps[] = {"properties", "patternProperties", "$defs", "definitions"};

Json type_alone(const Json& schema) {
  const auto type = schema.is_object() ? schema.find("type") : schema.end();
  const bool is_typed = schema.is_object() && type != schema.end();
  return is_typed ? Json{{"type", *type}} : Json::object();
}

// The steps of "/a/b~1c".
std::vector<std::string> steps_of(std::string_view pointer) {
  std::vector<std::string> steps;
  for (size_t i = 0; i < pointer.size(); ++i) {
    if (pointer[i] == '/') {
      steps.emplace_back();
    } else if (pointer[i] == '~' && i + 1 < pointer.size()) {
      steps.back() += pointer[++i] == '1' ? '/' : '~';
    } else {
      steps.back() += pointer[i];
    }
  }
  return steps;
}

Json* child_of(Json& parent, const std::string& step) {
  if (parent.is_object()) {
    const auto found = parent.find(step);
    return found == parent.end() ? nullptr : &*found;
  }
  size_t index = 0;
  const auto read = std::from_chars(step.data(), step.data() + step.size(), index);
  const bool is_index = read.ec == std::errc() && read.ptr == step.data() + step.size();
  return is_index && parent.is_array() && index < parent.size() ? &parent[index] : nullptr;
}

// False where the pointer leads nowhere.
bool loosen(Json& schema, std::string_view pointer) {
  const std::vector<std::string> steps = steps_of(pointer);
  Json* parent = &schema;
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    parent = child_of(*parent, steps[i]);
    if (parent == nullptr) return false;
  }
  Json* part = child_of(*parent, steps.back());
  if (part == nullptr) return false;
  bool is_schema = parent->is_array();
  for (const std::string_view map : kMaps) {
    is_schema |= steps.size() >= 2 && steps[steps.size() - 2] == map;
  }
  if (is_schema) {
    Json left = type_alone(*part);
    if (left == *part) left = Json::object();  // even its type could not be held to
    if (left == *part) return false;
    *part = std::move(left);
  } else {
    parent->erase(steps.back());
  }
  return true;
}

}  // namespace

std::optional<Json> without_refused(const Json& schema, std::string_view refusal) {
  const size_t begin = refusal.find("#/");
  if (begin == std::string_view::npos) return std::nullopt;
  const std::string_view rest = refusal.substr(begin + 1);
  // Names may have colons too.
  for (size_t end = rest.find(": "); end != std::string_view::npos;
       end = rest.find(": ", end + 1)) {
    Json left = schema;
    if (loosen(left, rest.substr(0, end))) return left;
  }
  return std::nullopt;
}

Json types_alone(const Json& parameters) {
  Json properties = Json::object();
  const auto stated = parameters.find("properties");
  if (stated != parameters.end() && stated->is_object()) {
    for (const auto& [name, schema] : stated->items()) properties[name] = type_alone(schema);
  }
  Json left = {{"type", "object"}, {"properties", std::move(properties)}};
  if (parameters.contains("required")) left["required"] = parameters["required"];
  return left;
}

}  // namespace moeflux::serve
