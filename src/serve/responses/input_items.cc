#include "serve/responses/input_items.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/format.h"
#include "serve/http/http_text.h"

namespace moeflux::serve {
namespace {

constexpr size_t kPageMax = 100;

// As clients' types have it: with a name and a type, a message in parts, however short the request
// wrote it.
Json whole_item(Json item, std::string name) {
  if (!item.contains("id")) item["id"] = std::move(name);
  if (!item.contains("type") && item.contains("role")) item["type"] = "message";
  if (item.value("type", Json()) != "message") return item;
  const char* type = item.value("role", Json()) == "assistant" ? "output_text" : "input_text";
  Json& content = item["content"];
  if (content.is_string()) content = Json::array({{{"type", type}, {"text", std::move(content)}}});
  if (!item.contains("status")) item["status"] = "completed";
  return item;
}

ApiError bad_query(const char* name, const std::string& found, const char* expected) {
  return bad_field(name, formatted("{} is {}, expected {}", name, json_excerpt(found), expected));
}

std::optional<size_t> read_limit(const std::string& text) {
  size_t limit = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, limit);
  if (read.ec != std::errc() || read.ptr != end || limit < 1 || limit > kPageMax) {
    return std::nullopt;
  }
  return limit;
}

}  // namespace

std::variant<Json, ApiError> list_input_items(const Json& items, const std::string& id,
                                              const std::string& query) {
  const std::string order = query_value(query, "order").value_or("desc");
  const std::string limit_text = query_value(query, "limit").value_or("20");
  const auto after = query_value(query, "after");
  const auto limit = read_limit(limit_text);
  if (!limit) return bad_query("limit", limit_text, "a number from 1 to 100");
  if (order != "asc" && order != "desc") return bad_query("order", order, "asc or desc");
  Json all = Json::array();
  for (size_t i = 0; i < items.size(); ++i) {
    all.push_back(whole_item(items[i], formatted("item_{}_{}", id, i)));
  }
  if (order == "desc") std::reverse(all.begin(), all.end());
  size_t first = 0;
  if (after) {
    while (first < all.size() && all[first]["id"] != *after) ++first;
    if (first == all.size()) return bad_query("after", *after, "the id of an item");
    ++first;
  }
  const size_t end = std::min(first + *limit, all.size());
  Json page = Json::array();
  for (size_t i = first; i < end; ++i) page.push_back(all[i]);
  return Json{{"object", "list"},
              {"data", page},
              {"first_id", page.empty() ? Json() : page.front()["id"]},
              {"last_id", page.empty() ? Json() : page.back()["id"]},
              {"has_more", end < all.size()}};
}

}  // namespace moeflux::serve
