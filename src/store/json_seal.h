// A checksum as the first member of a JSON object, over the object without it. What reads such a
// text as JSON finds one member more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace moeflux {

enum class SealState : uint8_t { kWhole, kAbsent, kDamaged };

/// Nothing is changed where the bytes do not begin as an object.
void add_seal(std::vector<std::byte>& text);
/// Takes the seal away where it is whole.
SealState take_seal(std::vector<std::byte>& text);

}  // namespace moeflux
