#include "serve/responses/stored_response.h"

#include <utility>

#include "base/format.h"
#include "chat/conversation.h"
#include "serve/wire/wire_json.h"

namespace moeflux::serve {
namespace {

constexpr int kStoredVersion = 1;

bool are_items(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_array()) return false;
  for (const Json& item : *found) {
    if (!item.is_object()) return false;
  }
  return true;
}

bool is_whole(const Json& json) {
  if (!json.is_object() || json.value("version", Json()) != kStoredVersion) return false;
  if (!are_items(json, "earlier") || !are_items(json, "input")) return false;
  const auto response = json.find("response");
  if (response == json.end() || !response->is_object()) return false;
  const auto id = response->find("id");
  return id != response->end() && id->is_string() && are_items(*response, "output");
}

// False where one of them is no message.
bool join_message(Json& begun, const Json& item) {
  const auto parts = item.find("content");
  if (begun.value("role", Json()) != "assistant" || item.value("type", Json()) != "message" ||
      parts == item.end() || !parts->is_array() || parts->empty()) {
    return false;
  }
  for (const Json& part : *parts) {
    const auto text = part.is_object() ? part.find("text") : part.end();
    if (text == part.end() || !text->is_string()) continue;
    append_text(begun["content"], text->get_ref<const std::string&>());
  }
  return true;
}

}  // namespace

Json StoredResponse::conversation() const {
  Json items = earlier;
  for (const Json& item : input) items.push_back(item);
  const size_t begun = items.size() - 1;
  bool is_open = continues && !items.empty();
  for (const Json& item : response["output"]) {
    if (is_open && join_message(items[begun], item)) {
      is_open = false;
    } else {
      items.push_back(item);
    }
  }
  return items;
}

std::string StoredResponse::text() const {
  return formatted(R"({{"version":{},"continues":{},"earlier":{},"input":{},"response":{}}})"
                   "\n",
                   kStoredVersion, continues, dump_json(earlier), dump_json(input),
                   dump_json(response));
}

Result<StoredResponse> StoredResponse::parse(std::string_view text, std::string_view what) {
  MF_ASSIGN_OR_RETURN(Json json, parse_json(text, what));
  if (!is_whole(json)) {
    return make_error(ErrorCode::kCorruption,
                      "{} holds {}, expected a stored response of version {}: lists of items "
                      "\"earlier\" and \"input\", and \"response\" with id and output",
                      what, json_excerpt(json), kStoredVersion);
  }
  return StoredResponse{.earlier = std::move(json["earlier"]),
                        .input = std::move(json["input"]),
                        .response = std::move(json["response"]),
                        .continues = json.value("continues", Json()) == true};
}

}  // namespace moeflux::serve
