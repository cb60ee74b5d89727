#include "quant/format.h"

#include "base/format.h"
#include "quant/formats/affine.h"
#include "quant/formats/tiled.h"
#include "quant/weight.h"

namespace moeflux {
std::string QuantFormat::to_string() const {
  switch (kind) {
    case QuantKind::kPlain: {
      std::string name(dtype_name(dtype));
      for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
      return name;
    }
    case QuantKind::kAffine:
      return format("affine-{}/{}{}", bits, group_size,
                    order == WeightOrder::kTiled ? " tiled" : "");
  }
  return format("of unknown kind {}", static_cast<int>(kind));
}

WeightBytes weight_bytes(const QuantFormat& format, int64_t rows, int64_t cols) {
  const auto elements = static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols);
  const auto dtype_bytes = static_cast<uint64_t>(dtype_bits(format.dtype)) / 8;
  switch (format.kind) {
    case QuantKind::kPlain:
      return {.data = elements * dtype_bytes};
    case QuantKind::kAffine: {
      const uint64_t groups = elements / static_cast<uint64_t>(format.group_size);
      const uint64_t codes = elements * static_cast<uint64_t>(format.bits) / 8;
      if (format.order == WeightOrder::kTiled) return {.data = codes + 2 * groups * dtype_bytes};
      return {.data = codes, .scales = groups * dtype_bytes, .biases = groups * dtype_bytes};
    }
  }
  __builtin_unreachable();
}

bool is_valid(const QuantFormat& format, int64_t cols) {
  const bool compute_float =
      format.dtype == DType::kF32 || format.dtype == DType::kF16 || format.dtype == DType::kBf16;
  switch (format.kind) {
    case QuantKind::kPlain:
      return compute_float;
    case QuantKind::kAffine:
      return compute_float && affine::is_valid_bits(format.bits) &&
             affine::is_valid_group(format.group_size) && cols % format.group_size == 0;
  }
  return false;
}

static void decode_tiled_row(const Weight& weight, int64_t row, std::span<float> out) {
  const QuantFormat& format = weight.format;
  const std::byte* tiles = host_ptr<std::byte>(weight.data);
  for (int64_t group = 0; group < weight.cols / format.group_size; ++group) {
    const auto [scale, bias] = tiled::params_at(tiles, format, weight.cols, row, group);
    for (int64_t i = 0; i < format.group_size; ++i) {
      const int64_t col = group * format.group_size + i;
      const uint32_t code = tiled::code_at(tiles, format, weight.cols, row, col);
      out[static_cast<size_t>(col)] = scale * static_cast<float>(code) + bias;
    }
  }
}

void decode_row(const Weight& weight, int64_t row, std::span<float> out) {
  const QuantFormat& format = weight.format;
  MF_CHECK(static_cast<int64_t>(out.size()) == weight.cols && row >= 0 && row < weight.rows);
  const std::byte* data = host_ptr<std::byte>(weight.data);
  switch (format.kind) {
    case QuantKind::kPlain: {
      for (int64_t c = 0; c < weight.cols; ++c) {
        out[static_cast<size_t>(c)] = load_float(data, row * weight.cols + c, format.dtype);
      }
      return;
    }
    case QuantKind::kAffine: {
      if (format.order == WeightOrder::kTiled) return decode_tiled_row(weight, row, out);
      const int64_t groups = weight.cols / format.group_size;
      const std::byte* codes = data + row * (weight.cols * format.bits / 8);
      const std::byte* scales = host_ptr<std::byte>(weight.scales);
      const std::byte* biases = host_ptr<std::byte>(weight.biases);
      for (int64_t c = 0; c < weight.cols; ++c) {
        const int64_t group = row * groups + c / format.group_size;
        out[static_cast<size_t>(c)] =
            load_float(scales, group, format.dtype) *
                static_cast<float>(affine::code_at(codes, c, format.bits)) +
            load_float(biases, group, format.dtype);
      }
      return;
    }
  }
  __builtin_unreachable();
}

}  // namespace moeflux
