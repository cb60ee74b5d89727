#include "serve/field_names.h"

#include <algorithm>
#include <array>
#include <string>

namespace moeflux::serve {
namespace {

constexpr std::array<std::string_view, 7> kOfSeveralAnswers = {
    "n", "logprobs", "top_logprobs", "stream_options", "audio", "web_search_options", "functions"};

// "tools" of "tools[0].function", and the whole of it.
bool begins_with_field(std::string_view param, std::string_view field) {
  if (!param.starts_with(field)) return false;
  return param.size() == field.size() || param[field.size()] == '.' || param[field.size()] == '[';
}

}  // namespace

ApiError in_their_words(ApiError error, std::span<const FieldName> names) {
  for (const FieldName& name : names) {
    if (!begins_with_field(error.param, name.openai)) continue;
    const size_t at = error.message.find(error.param);
    error.param.replace(0, name.openai.size(), name.theirs);
    if (at != std::string::npos) error.message.replace(at, name.openai.size(), name.theirs);
    break;
  }
  return error;
}

DecodedChat decode_translated(const Json& chat, const RequestDefaults& defaults,
                              std::span<const FieldName> names) {
  DecodedChat decoded = decode_chat_request(chat, defaults);
  if (auto* error = std::get_if<ApiError>(&decoded)) return in_their_words(*error, names);
  std::string& source = std::get<ChatRequest>(decoded).constraint.source;
  for (const FieldName& name : names) {
    if (!begins_with_field(source, name.openai)) continue;
    source.replace(0, name.openai.size(), name.theirs);
    break;
  }
  return decoded;
}

Json shared_fields(const Json& body, std::span<const std::string_view> own) {
  Json fields = Json::object();
  if (!body.is_object()) return fields;
  for (const auto& [name, value] : body.items()) {
    const bool is_own = std::find(own.begin(), own.end(), name) != own.end() ||
                        std::find(kOfSeveralAnswers.begin(), kOfSeveralAnswers.end(), name) !=
                            kOfSeveralAnswers.end();
    if (!is_own) fields[name] = value;
  }
  return fields;
}

}  // namespace moeflux::serve
