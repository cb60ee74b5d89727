// Reads the safetensors files that hold a reference's numbers.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace moeflux::testing {

struct GoldenTensor {
  std::vector<int64_t> shape;
  std::vector<float> floats;  // of an F32 tensor
  std::vector<int32_t> ints;  // of an I32 tensor

  /// Row `i` of a tensor seen as [rows, last extent].
  std::span<const float> row(int64_t i) const;
  int64_t rows() const;
};

/// Tensors by name; a failure is a gtest failure and an empty map.
std::map<std::string, GoldenTensor> read_golden(const std::string& path);

/// tests/ of the source tree.
std::string tests_directory();

double cosine(std::span<const float> a, std::span<const float> b);
double max_abs_difference(std::span<const float> a, std::span<const float> b);
/// The largest entry minus the second largest, and where the largest is.
struct Top {
  size_t index = 0;
  float margin = 0.0f;
};
Top top_of(std::span<const float> values);

}  // namespace moeflux::testing
