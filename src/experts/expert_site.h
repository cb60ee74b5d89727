// Where an expert is computed, and who decides it.
#pragma once

#include <cstdint>

namespace moeflux {

enum class ExpertSite : uint8_t {
  kDevice,  // by the step's encoder
  kHelper,  // by an ExpertHelper, which takes turns with it in the same rows
};

/// When a helper computes experts in the host's memory, in steps that are short enough for it.
enum class HelpMode : uint8_t {
  kFastest,  // all of them, some or none, whatever is found to be the fastest
  kAlways,   // all of them
  kShared,   // some of them, where the store can divide them
  kNever,
};

}  // namespace moeflux
