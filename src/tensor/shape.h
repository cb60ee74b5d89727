// The extents of a tensor, outermost first.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/check.h"

namespace moeflux {

/// Up to eight extents; compute uses at most four, checkpoints hold five (vision convolutions).
class Shape {
 public:
  static constexpr int kRankMax = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
    MF_CHECK(dims.size() <= static_cast<size_t>(kRankMax));
    for (size_t i = 0; i < dims.size(); ++i) dims_[i] = dims[i];
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  void set(int i, int64_t extent) { dims_[static_cast<size_t>(i)] = extent; }
  /// The innermost extent.
  int64_t back() const { return dims_[static_cast<size_t>(rank_ - 1)]; }
  /// 1 for a scalar. The parsers check for overflow before they build a Shape.
  int64_t num_elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[static_cast<size_t>(i)];
    return n;
  }
  /// "[2, 3]".
  std::string to_string() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<int64_t, kRankMax> dims_{};
  int rank_ = 0;
};

}  // namespace moeflux
