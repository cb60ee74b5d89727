#include "serve/responses/stored_response.h"

#include <utility>

#include "base/format.h"
#include "serve/wire_json.h"

namespace moeflux::serve {
namespace {

constexpr int kVersion = 1;

bool are_items(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_array()) return false;
  for (const Json& item : *found) {
    if (!item.is_object()) return false;
  }
  return true;
}

bool is_whole(const Json& json) {
  if (!json.is_object() || json.value("version", Json()) != kVersion) return false;
  if (!are_items(json, "earlier") || !are_items(json, "input")) return false;
  const auto response = json.find("response");
  if (response == json.end() || !response->is_object()) return false;
  const auto id = response->find("id");
  return id != response->end() && id->is_string() && are_items(*response, "output");
}

}  // namespace

Json StoredResponse::conversation() const {
  Json items = earlier;
  for (const Json& item : input) items.push_back(item);
  for (const Json& item : response["output"]) items.push_back(item);
  return items;
}

std::string StoredResponse::text() const {
  return formatted(R"({{"version":{},"earlier":{},"input":{},"response":{}}})"
                   "\n",
                   kVersion, dump_json(earlier), dump_json(input), dump_json(response));
}

Result<StoredResponse> StoredResponse::parse(std::string_view text, std::string_view what) {
  MF_ASSIGN_OR_RETURN(Json json, parse_json(text, what));
  if (!is_whole(json)) {
    return make_error(ErrorCode::kCorruption,
                      "{} holds {}, expected a kept response of version {}: lists of items "
                      "\"earlier\" and \"input\", and \"response\" with id and output",
                      what, json_excerpt(json), kVersion);
  }
  return StoredResponse{.earlier = std::move(json["earlier"]),
                        .input = std::move(json["input"]),
                        .response = std::move(json["response"])};
}

}  // namespace moeflux::serve
