#include "output/element_json.h"

#include <algorithm>
#include <optional>

#include "base/format.h"
#include "output/value_reader.h"

namespace moeflux {
namespace {

constexpr int kDepthMax = 32;
constexpr std::string_view kSpaces = " \t\r\n";

class Elements {
 public:
  explicit Elements(const ElementTags& tags) : tags_(tags) {}

  /// The value of elements one behind another; nothing where anything else stands between them.
  std::optional<std::string> value(std::string_view text, int depth) const {
    if (depth >= kDepthMax) return std::nullopt;
    std::string members;
    std::string items;
    bool is_list = true;
    for (skip_spaces(&text); !text.empty(); skip_spaces(&text)) {
      std::string_view inside;
      const std::optional<std::string_view> name = take(&text, &inside);
      if (!name) return std::nullopt;
      const std::string own = value(inside, depth + 1).value_or(typed_json(inside, kTypeAny));
      is_list = is_list && *name == "item";
      items += formatted("{}{}", items.empty() ? "" : ",", own);
      members += formatted("{}{}:{}", members.empty() ? "" : ",", json_quoted(*name), own);
    }
    if (items.empty()) return std::nullopt;
    return is_list ? formatted("[{}]", items) : formatted("{{{}}}", members);
  }

 private:
  static void skip_spaces(std::string_view* text) {
    text->remove_prefix(std::min(text->find_first_not_of(kSpaces), text->size()));
  }

  /// Takes one element off the front.
  std::optional<std::string_view> take(std::string_view* text, std::string_view* inside) const {
    if (!text->starts_with(tags_.open) || text->starts_with(tags_.close)) return std::nullopt;
    const size_t end = text->find('>', tags_.open.size());
    if (end == std::string_view::npos || end == tags_.open.size()) return std::nullopt;
    const std::string_view name = text->substr(tags_.open.size(), end - tags_.open.size());
    const std::string_view rest = text->substr(end + 1);
    int open = 1;
    for (size_t at = 0; at < rest.size();) {
      const std::string_view here = rest.substr(at);
      if (here.starts_with(tags_.close)) {
        if (--open == 0) {
          const std::string_view behind = here.substr(tags_.close.size());
          if (!behind.starts_with(name) || !behind.substr(name.size()).starts_with(">")) {
            return std::nullopt;
          }
          *inside = rest.substr(0, at);
          *text = behind.substr(name.size() + 1);
          return name;
        }
        at += tags_.close.size();
      } else if (here.starts_with(tags_.open)) {
        ++open;
        at += tags_.open.size();
      } else {
        ++at;
      }
    }
    return std::nullopt;
  }

  const ElementTags tags_;
};

}  // namespace

std::string elements_json(std::string_view text, const ElementTags& tags, TypeSet types) {
  const bool is_blank = text.find_first_not_of(kSpaces) == std::string_view::npos;
  if (is_blank && (types & kTypeString) == 0) {
    if ((types & kTypeArray) != 0) return "[]";
    if ((types & kTypeObject) != 0) return "{}";
  }
  return Elements(tags).value(text, 0).value_or("");
}

}  // namespace moeflux
