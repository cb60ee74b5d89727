// The scalar functions that operations of the reference share, in f64.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include "backend/activation.h"

namespace moeflux::reference {

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

inline double activate(double x, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return x * sigmoid(x);
    case Activation::kSigmoid:
      return sigmoid(x);
    case Activation::kIdentity:
      return x;
    case Activation::kRelu:
      return x < 0.0 ? 0.0 : x;
    case Activation::kCappedSilu:  // gated units, which know their limits
    case Activation::kSoftCapped:
      break;
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x * 0.70710678118654752440);
    case Activation::kSoftplus:
      return x > 0.0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
    case Activation::kGeluTanh: {
      constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
      return 0.5 * x * (1.0 + std::tanh(kSqrtTwoOverPi * (x + 0.044715 * x * x * x)));
    }
  }
  __builtin_unreachable();
}

inline double dot(std::span<const float> a, const float* b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

/// dot() with four rows, each in the same order: the four sums need not wait for each other.
inline std::array<double, 4> dots(std::span<const float> a, const std::array<const float*, 4>& b) {
  std::array<double, 4> sums{};
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < 4; ++k) {
      sums[k] += static_cast<double>(a[i]) * static_cast<double>(b[k][i]);
    }
  }
  return sums;
}

inline double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

inline double gated(double gate, double up, const GluOptions& o) {
  if (o.activation == Activation::kCappedSilu) {
    const double limit = o.limit;
    return std::min(activate(gate, Activation::kSilu), limit) * std::clamp(up, -limit, limit);
  }
  if (o.activation == Activation::kSoftCapped) {
    const double linear = o.limit * std::tanh(gate / o.limit);
    return linear * sigmoid(gate) * o.alpha * std::tanh(up / o.alpha);
  }
  if (o.activation != Activation::kSilu) return activate(gate, o.activation) * up;
  const double limit = o.limit;
  gate = std::min(gate, limit);
  up = std::clamp(up, -limit, limit) + o.up_offset;
  return up * gate / (1.0 + std::exp(-o.alpha * gate));
}

}  // namespace moeflux::reference
