#include "tests/support/golden_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "checkpoint/safetensors.h"
#include "io/file.h"

namespace moeflux::testing {

std::span<const float> GoldenTensor::row(int64_t i) const {
  const auto width = static_cast<size_t>(shape.back());
  return std::span(floats).subspan(static_cast<size_t>(i) * width, width);
}

int64_t GoldenTensor::rows() const { return static_cast<int64_t>(floats.size()) / shape.back(); }

std::map<std::string, GoldenTensor> read_golden(const std::string& path) {
  std::map<std::string, GoldenTensor> tensors;
  const auto file = open_file(path);
  EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().to_string());
  if (!file.ok()) return tensors;
  const auto header = safetensors::read_header(**file);
  EXPECT_TRUE(header.ok()) << (header.ok() ? "" : header.error().to_string());
  if (!header.ok()) return tensors;
  for (const safetensors::HeaderEntry& entry : header->entries) {
    GoldenTensor tensor;
    for (int i = 0; i < entry.shape.rank(); ++i) tensor.shape.push_back(entry.shape[i]);
    const auto count = static_cast<size_t>(entry.shape.num_elements());
    std::span<std::byte> into;
    if (entry.dtype == DType::kF32) {
      tensor.floats.resize(count);
      into = std::as_writable_bytes(std::span(tensor.floats));
    } else if (entry.dtype == DType::kI32) {
      tensor.ints.resize(count);
      into = std::as_writable_bytes(std::span(tensor.ints));
    } else {
      ADD_FAILURE() << path << ": " << entry.name << " is " << dtype_name(entry.dtype);
      continue;
    }
    const Status read = (*file)->read_at(header->data_offset + entry.begin, into);
    EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.error().to_string());
    tensors.emplace(entry.name, std::move(tensor));
  }
  return tensors;
}

std::string tests_directory() { return std::string(MOEFLUX_SOURCE_DIR) + "/tests"; }

double cosine(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double ab = 0.0;
  double aa = 0.0;
  double bb = 0.0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

double max_abs_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0.0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(difference <= worst)) worst = difference;  // NaN counts as worst
  }
  return worst;
}

Top top_of(std::span<const float> values) {
  const auto best = std::max_element(values.begin(), values.end());
  float second = -INFINITY;
  for (auto it = values.begin(); it != values.end(); ++it) {
    if (it != best) second = std::max(second, *it);
  }
  return {static_cast<size_t>(best - values.begin()), *best - second};
}

}  // namespace moeflux::testing
