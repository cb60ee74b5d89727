// The JSON types that a request's tools allow for each of their parameters, and conversion of text
// to a value of such a type. For formats that write arguments without saying what they are.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/json_fwd.h"

namespace moeflux {

/// A set of JSON types.
enum : uint8_t {
  kTypeString = 1,
  kTypeInteger = 2,
  kTypeNumber = 4,
  kTypeBoolean = 8,
  kTypeNull = 16,
  kTypeObject = 32,
  kTypeArray = 64,
};
using TypeSet = uint8_t;
inline constexpr TypeSet kTypeAny = 127;

/// Immutable after construction; may be shared by threads.
class ToolTypes {
 public:
  ToolTypes() = default;
  /// Reads [{"type": "function", "function": {"name", "parameters"}}] or the functions themselves.
  /// Anything else says nothing; nothing is an error.
  static ToolTypes of_tools(const Json& tools);

  /// The types of a parameter; absent where no tool says any.
  std::optional<TypeSet> types_of(std::string_view tool, std::string_view parameter) const;

 private:
  std::map<std::string, std::map<std::string, TypeSet, std::less<>>, std::less<>> tools_;
};

/// The JSON of a value written as bare text: of the first of these types that it can be read as,
/// null, boolean, integer, number, object and array first, string last, whether allowed or not.
/// Objects and arrays may be written as Python's literals.
std::string typed_json(std::string_view text, TypeSet types);

/// The JSON that the text is, else the text as a string.
std::string json_or_string(std::string_view text);

}  // namespace moeflux
