// The names of JSON values, for headers that hold none: base/json.h takes two seconds to compile.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace moeflux {

template <class Key, class Value, class Less, class Allocator>
class OrderedMap;  // base/ordered_map.h

/// Key order of the file is kept: messages and dumps read like the input. A key is found in
/// logarithmic time.
using Json = nlohmann::basic_json<OrderedMap>;
/// Keys sorted, for lists that are read in the order of their names.
using SortedJson = nlohmann::json;

}  // namespace moeflux
