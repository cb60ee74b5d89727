// A checksum as the first member of a JSON object, over the object without it, and behind it the
// name that the object is stored under. A JSON reader finds two members more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace moeflux {

enum class SealState : uint8_t {
  kWhole,
  kAbsent,  // or whole without a name, as older versions wrote it
  kDamaged,
  kOfAnother,  // whole, with another name
};

// Names need no escapes in JSON.

/// Nothing is changed where the bytes do not begin as an object.
void add_seal(std::vector<std::byte>& text, const std::string& name);
/// Takes the seal away where it is whole and has that name, or none.
SealState take_seal(std::vector<std::byte>& text, const std::string& name);

}  // namespace moeflux
