// Where an expert is computed.
#pragma once

#include <cstdint>

namespace moeflux {

enum class ExpertSite : uint8_t {
  kDevice,  // by the step's encoder
  kHelper,  // by an ExpertHelper, which takes turns with it in the same rows
};

}  // namespace moeflux
