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
#include <string>

#include "base/format.h"
#include "quant/format_traits.h"
#include "quant/formats/affine.h"
#include "quant/formats/tensor_formats.h"
#include "quant/weight.h"

namespace moeflux::integer_groups {

using ConstBytes = std::span<const std::byte>;
using Bytes = std::span<std::byte>;

/// "64", or "channel" of a group of all columns: the end of a format's name.
inline std::string group_name(const QuantFormat& format) {
  return format.group_size == 0 ? "channel" : formatted("{}", format.group_size);
}
inline int64_t words_for(int64_t codes, int bits) { return (codes * bits + 31) / 32; }
inline int64_t width_of(const QuantFormat& format, int64_t cols) {
  return format.group_size == 0 ? cols : format.group_size;
}
inline int64_t groups_of(const QuantFormat& format, int64_t cols) {
  return (cols + width_of(format, cols) - 1) / width_of(format, cols);
}

inline uint32_t word_at(ConstBytes words, int64_t at) {
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

inline void store_float(Bytes to, int64_t at, DType dtype, float value) {
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

inline ConstBytes bytes_of(const Tensor& part) {
  if (part.is_null()) return {};
  return {host_ptr<std::byte>(part), part.size_bytes()};
}

/// The group of column `c`. A map is checked when it is loaded; whatever it says here, no group is
/// outside.
inline int64_t group_of(const QuantFormat& format, int64_t cols, ConstBytes map, int64_t c) {
  if (map.empty()) return c / width_of(format, cols);
  return std::min<int64_t>(word_at(map, c), groups_of(format, cols) - 1);
}

/// The format in memory: affine with parameters of `dtype`, or grouped_int.
inline QuantFormat memory_of(const QuantFormat& format, int64_t cols, DType dtype) {
  QuantFormat grouped =
      integers_of(grouped_int_format, format.bits, format.group_size, DType::kF32);
  grouped.variant = format.variant & kColumnMap;
  return has_column_map(format) ? grouped : affine_of(format, cols, dtype).value_or(grouped);
}

/// Parameters of a group of a row, from the bytes of a file's scales and zero points.
using ParamsAt = Params (*)(const Weight& stored, ConstBytes scales, ConstBytes zeros, int64_t row,
                            int64_t group);

/// The numbers of a row whose codes are code_at(column).
template <class CodeAt>
void decode_row(const Weight& weight, int64_t row, std::span<float> out, ParamsAt params_at,
                const CodeAt& code_at) {
  const ConstBytes scales = bytes_of(weight.parts.scales);
  const ConstBytes zeros = bytes_of(weight.parts.offsets);
  const ConstBytes map = bytes_of(weight.parts.column_map);
  for (int64_t c = 0; c < weight.cols; ++c) {
    const int64_t group = group_of(weight.format, weight.cols, map, c);
    const Params params = params_at(weight, scales, zeros, row, group);
    out[static_cast<size_t>(c)] = static_cast<float>(code_at(c) - params.zero) * params.scale;
  }
}

/// All but the codes of rows [begin, begin + count).
inline void convert_params(const Weight& stored, const Parts<Bytes>& from, int64_t begin,
                           int64_t count, const Parts<Bytes>& to, const QuantFormat& memory,
                           ParamsAt params_at) {
  const bool is_affine = memory.is_affine();
  const int64_t width = width_of(stored.format, stored.cols);
  const int64_t repeats = is_affine ? width / memory.group_size : 1;
  const int64_t groups =
      is_affine ? stored.cols / memory.group_size : groups_of(stored.format, stored.cols);
  for (int64_t row = 0; row < count; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      const Params params =
          params_at(stored, from.scales, from.offsets, begin + row, group / repeats);
      const auto zero = static_cast<float>(params.zero);
      const int64_t at = row * groups + group;
      store_float(to.scales, is_affine ? at : 2 * at, memory.dtype, params.scale);
      if (is_affine) {
        store_float(to.offsets, at, memory.dtype, -zero * params.scale);
      } else {
        store_float(to.scales, 2 * at + 1, memory.dtype, zero);
      }
    }
  }
  for (int64_t c = 0; !is_affine && c < stored.cols; ++c) {
    const auto group =
        static_cast<int32_t>(group_of(stored.format, stored.cols, from.column_map, c));
    std::memcpy(to.column_map.data() + 4 * c, &group, 4);
  }
}

}  // namespace moeflux::integer_groups
