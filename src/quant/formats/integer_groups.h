// The common part of formats of whole numbers in files: w = (code - zero) * scale with a scale and
// a zero point for each group of columns, and the matrix of the same numbers in memory. It is
// affine, with biases of -zero * scale, where that gives the same numbers: products of a 16-bit
// float and a small whole number, and sums of two of them, are exact in f32. Others are
// grouped_int.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "quant/formats/affine.h"
#include "quant/formats/tensor_formats.h"
#include "quant/weight.h"

namespace moeflux::integer_groups {

inline int64_t words_for(int64_t codes, int bits) { return (codes * bits + 31) / 32; }
inline int64_t width_of(const QuantFormat& format, int64_t cols) {
  return format.group_size == 0 ? cols : format.group_size;
}
inline int64_t groups_of(const QuantFormat& format, int64_t cols) {
  return (cols + width_of(format, cols) - 1) / width_of(format, cols);
}

inline uint32_t word_at(std::span<const std::byte> words, int64_t at) {
  uint32_t word;
  std::memcpy(&word, words.data() + 4 * at, 4);
  return word;
}
/// Code `i` of those of which a word holds 32 / bits, the first in the lowest bits.
inline int code_in(uint32_t word, int64_t i, int bits) {
  return static_cast<int>(word >> (i % (32 / bits) * bits) & ((1u << bits) - 1u));
}

inline bool has_valid_fields(const QuantFormat& format, int64_t cols) {
  return (format.bits == 4 || format.bits == 8) && cols > 0 && cols % 8 == 0 &&
         (format.dtype == DType::kF16 || format.dtype == DType::kBf16 ||
          format.dtype == DType::kF32) &&
         format.group_size >= 0 && format.group_size <= 1 << 16 && format.group_rows == 0 &&
         format.order == WeightOrder::kRowMajor;
}

/// The affine format with parameters of `dtype`; nullopt where numbers would be rounded, or groups
/// are none of its own.
inline std::optional<QuantFormat> affine_of(const QuantFormat& format, int64_t cols, DType dtype) {
  if (format.dtype == DType::kF32) return std::nullopt;
  for (const int group : {128, 64, 32}) {
    const QuantFormat affine = QuantFormat::affine(format.bits, group, dtype);
    if (width_of(format, cols) % group == 0 && cols % group == 0) return affine;
  }
  return std::nullopt;
}

inline void store_float(std::span<std::byte> to, int64_t at, DType dtype, float value) {
  if (dtype == DType::kF32) {
    std::memcpy(to.data() + 4 * at, &value, 4);
  } else if (dtype == DType::kBf16) {
    const Bf16 half = to_bf16(value);
    std::memcpy(to.data() + 2 * at, &half, 2);
  } else {
    const F16 half = to_f16(value);
    std::memcpy(to.data() + 2 * at, &half, 2);
  }
}

struct Params {
  float scale;
  int zero;
};

inline std::span<const std::byte> bytes_of(const Tensor& part) {
  if (part.is_null()) return {};
  return {host_ptr<std::byte>(part), part.size_bytes()};
}

/// The group of column `c`. A map is checked when it is loaded; whatever it says here, no group is
/// outside.
inline int64_t group_of(const QuantFormat& format, int64_t cols, std::span<const std::byte> map,
                        int64_t c) {
  if (map.empty()) return c / width_of(format, cols);
  return std::min<int64_t>(word_at(map, c), groups_of(format, cols) - 1);
}

/// The format in memory: affine with parameters of `dtype`, or grouped_int.
inline QuantFormat memory_of(const QuantFormat& format, int64_t cols, DType dtype) {
  const QuantFormat grouped =
      integers_of(grouped_int_format, format.bits, format.group_size, DType::kF32);
  return has_column_map(format) ? grouped : affine_of(format, cols, dtype).value_or(grouped);
}

/// All of grouped_int but its codes.
template <class ParamsAt>
void convert_grouped(const Weight& stored, std::span<const std::byte> map, int64_t begin,
                     int64_t count, const Parts<std::span<std::byte>>& to,
                     const ParamsAt& params_at) {
  const int64_t groups = groups_of(stored.format, stored.cols);
  for (int64_t at = 0; at < count * groups; ++at) {
    const Params params = params_at(begin + at / groups, at % groups);
    store_float(to.scales, 2 * at, DType::kF32, params.scale);
    store_float(to.scales, 2 * at + 1, DType::kF32, static_cast<float>(params.zero));
  }
  for (int64_t c = 0; c < stored.cols; ++c) {
    const auto group = static_cast<int32_t>(group_of(stored.format, stored.cols, map, c));
    std::memcpy(to.column_map.data() + 4 * c, &group, 4);
  }
}

/// All but the codes of rows [begin, begin + count); params_at(row, group) are the file's.
template <class ParamsAt>
void convert_params(const Weight& stored, std::span<const std::byte> map, int64_t begin,
                    int64_t count, const QuantFormat& memory, const Parts<std::span<std::byte>>& to,
                    const ParamsAt& params_at) {
  if (!memory.is_affine()) return convert_grouped(stored, map, begin, count, to, params_at);
  const int64_t groups = stored.cols / memory.group_size;
  const int64_t repeats = width_of(stored.format, stored.cols) / memory.group_size;
  for (int64_t row = 0; row < count; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      const Params params = params_at(begin + row, group / repeats);
      const int64_t at = row * groups + group;
      store_float(to.scales, at, memory.dtype, params.scale);
      store_float(to.offsets, at, memory.dtype, -static_cast<float>(params.zero) * params.scale);
    }
  }
}

}  // namespace moeflux::integer_groups
