// Arguments of ops in the plain terms of the kernels.
#pragma once

#include "backend/cpu/kernels/kernel_table.h"
#include "backend/ops.h"
#include "base/check.h"
#include "quant/formats/tiled.h"
#include "quant/weight.h"

namespace moeflux::cpu {

inline ElementType element_type(DType dtype) {
  if (dtype == DType::kBf16) return ElementType::kBf16;
  if (dtype == DType::kF16) return ElementType::kF16;
  MF_CHECK(dtype == DType::kF32);  // callers let nothing else through
  return ElementType::kF32;
}

inline const uint8_t* bytes_of(const Tensor& tensor) {
  return tensor.is_null() ? nullptr : reinterpret_cast<const uint8_t*>(host_ptr<std::byte>(tensor));
}

inline const float* floats_or_null(const Tensor& tensor) {
  return tensor.is_null() ? nullptr : host_ptr<float>(tensor);
}

/// False for a format that MatrixArgs and TileMatrix do not describe: its numbers would be taken
/// for those of another one.
inline bool has_kernels(const Weight& weight) {
  const QuantFormat& format = weight.format;
  if (format.is_plain()) return true;
  return format.is_affine() &&
         (format.order == WeightOrder::kRowMajor || tiled::is_tileable(format, weight.rows));
}

inline MatrixArgs matrix_args(const Weight& weight) {
  MF_CHECK(weight.format.order == WeightOrder::kRowMajor);
  return {.data = bytes_of(weight.parts.codes),
          .scales = bytes_of(weight.parts.scales),
          .biases = bytes_of(weight.parts.offsets),
          .rows = weight.rows,
          .cols = weight.cols,
          .type = element_type(weight.format.dtype),
          .bits = weight.format.is_affine() ? weight.format.bits : 0,
          .group_size = weight.format.group_size};
}

/// Rows that have been decoded to f32.
inline MatrixArgs decoded_args(const std::byte* floats, int64_t rows, int64_t cols) {
  return {.data = reinterpret_cast<const uint8_t*>(floats),
          .scales = nullptr,
          .biases = nullptr,
          .rows = rows,
          .cols = cols,
          .type = ElementType::kF32,
          .bits = 0,
          .group_size = 0};
}

inline BiasArgs bias_args(const Tensor& bias) { return {bytes_of(bias), element_type(bias.dtype)}; }

/// 4-bit codes are multiplied in the order they decode to.
inline bool wants_permuted(const Weight& weight) {
  return weight.format.is_affine() && weight.format.bits == 4;
}

inline ActivationKind kernel_activation(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return ActivationKind::kSilu;
    case Activation::kSigmoid:
      return ActivationKind::kSigmoid;
    case Activation::kGeluTanh:
      return ActivationKind::kGeluTanh;
    case Activation::kIdentity:
      return ActivationKind::kIdentity;
  }
  __builtin_unreachable();
}

inline GluArgs glu_args(const GluOptions& options) {
  MF_CHECK(options.activation == Activation::kSilu || options.activation == Activation::kGeluTanh);
  return {.activation = kernel_activation(options.activation),
          .alpha = options.alpha,
          .limit = options.limit,
          .up_offset = options.up_offset};
}

}  // namespace moeflux::cpu
