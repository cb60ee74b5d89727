// Results one behind another.
#pragma once

#include <initializer_list>
#include <vector>

namespace moeflux::conformance {

inline std::vector<float> joined(std::initializer_list<std::vector<float>> parts) {
  std::vector<float> all;
  for (const std::vector<float>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace moeflux::conformance
