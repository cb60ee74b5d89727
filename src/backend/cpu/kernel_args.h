// Arguments of ops in the plain terms of the kernels.
#pragma once

#include <optional>

#include "backend/activation.h"
#include "backend/cpu/kernels/kernel_table.h"
#include "base/check.h"
#include "quant/formats/tensor_formats.h"
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

/// Formats of small floats that kernels read; nullopt for others.
inline std::optional<CodeKind> code_kind(const QuantFormat& format) {
  if (format.kind == &fp8_format) return CodeKind::kFp8;
  if (format.kind == &mxfp4_format) return CodeKind::kMxfp4;
  if (format.kind == &nvfp4_format) return CodeKind::kNvfp4;
  return std::nullopt;
}

/// False for a format that MatrixArgs and TileMatrix do not describe: its numbers would be taken
/// for those of another one.
inline bool has_kernels(const Weight& weight) {
  const QuantFormat& format = weight.format;
  if (format.is_plain()) return true;
  if (code_kind(format)) return true;
  return format.is_affine() &&
         (format.order == WeightOrder::kRowMajor || tiled::is_tileable(format, weight.rows));
}

/// The factor that NVFP4 multiplies its scales with.
inline float outer_factor(const Weight& weight) {
  const auto outer = static_cast<OuterScale>(weight.format.variant);
  if (weight.format.kind != &nvfp4_format || outer == OuterScale::kNone) return 1.0f;
  const float value = load_float(host_ptr<std::byte>(weight.parts.outer_scale), 0, DType::kF32);
  return outer == OuterScale::kDivisor ? 1.0f / value : value;
}

inline MatrixArgs matrix_args(const Weight& weight) {
  const QuantFormat& format = weight.format;
  MF_CHECK(format.order == WeightOrder::kRowMajor);
  const CodeKind simple = format.is_affine() ? CodeKind::kAffine : CodeKind::kPlain;
  return {.data = bytes_of(weight.parts.codes),
          .scales = bytes_of(weight.parts.scales),
          .biases = bytes_of(weight.parts.offsets),
          .rows = weight.rows,
          .cols = weight.cols,
          .type = is_plain_float(format.dtype) ? element_type(format.dtype) : ElementType::kF32,
          .kind = code_kind(format).value_or(simple),
          .bits = format.is_affine() ? format.bits : 0,
          .group_size = format.group_size,
          .group_rows = format.group_rows,
          .has_power_scales = format.dtype == DType::kF8E8M0,
          .outer_scale = outer_factor(weight)};
}

/// Rows that have been decoded to f32.
inline MatrixArgs decoded_args(const std::byte* floats, int64_t rows, int64_t cols) {
  return {.data = reinterpret_cast<const uint8_t*>(floats),
          .scales = nullptr,
          .biases = nullptr,
          .rows = rows,
          .cols = cols,
          .type = ElementType::kF32,
          .kind = CodeKind::kPlain,
          .bits = 0,
          .group_size = 0,
          .group_rows = 0,
          .has_power_scales = false,
          .outer_scale = 1.0f};
}

inline BiasArgs bias_args(const Tensor& bias) { return {bytes_of(bias), element_type(bias.dtype)}; }

/// Pairs of codes are multiplied in the order they decode to: is_permuted() of the kernels.
inline bool wants_permuted(const Weight& weight) {
  const std::optional<CodeKind> kind = code_kind(weight.format);
  return kind ? *kind != CodeKind::kFp8 : weight.format.is_affine() && weight.format.bits == 4;
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
    case Activation::kRelu:
      return ActivationKind::kRelu;
    case Activation::kCappedSilu:
      return ActivationKind::kCappedSilu;
    case Activation::kSoftplus:
      return ActivationKind::kSoftplus;
    case Activation::kSoftCapped:
      return ActivationKind::kSoftCapped;
    case Activation::kGelu:
      return ActivationKind::kGelu;
  }
  __builtin_unreachable();
}

inline GluArgs glu_args(const GluOptions& options) {
  return {.activation = kernel_activation(options.activation),
          .alpha = options.alpha,
          .limit = options.limit,
          .up_offset = options.up_offset};
}

}  // namespace moeflux::cpu
