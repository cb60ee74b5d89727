// JSON of values that are written as elements: <key>value</key> for each member of an object,
// <item>value</item> for each of a list, perhaps with a prefix before each tag.
#pragma once

#include <string>
#include <string_view>

#include "output/tool_types.h"

namespace moeflux {

/// The characters before the names of tags.
struct ElementTags {
  std::string_view open;   // "<"
  std::string_view close;  // "</"
};

/// The object or list that `text` says in elements, or, where it says nothing and no string may
/// stand here, the empty one of `types`. Empty: `text` is no such value. Within elements, text is
/// read as the first JSON type that fits.
std::string elements_json(std::string_view text, const ElementTags& tags, TypeSet types);

}  // namespace moeflux
