// NVFP4: groups of 16 weights along a row share a scale of one byte (e4m3), w = e2m1(code) *
// e4m3(scale). The matrix may have an outer scale, an F32: w is multiplied by it, or divided, which
// is to multiply with its reciprocal in f32. Codes are two a byte, the even column in the low half.
// In memory rows of whole blocks of 64 are GGML's blocks, where a scale that is NaN is 0.
// Source: NVIDIA's Model Optimizer (multiplies), compressed-tensors (divides), MLX (has none).
#include <cstring>

#include "quant/format_traits.h"
#include "quant/formats/blocks.h"
#include "quant/formats/tensor_formats.h"
#include "quant/small_floats.h"

namespace moeflux {
namespace nvfp4 {
namespace {

constexpr int64_t kGroup = 16;

OuterScale outer_of(const QuantFormat& format) { return static_cast<OuterScale>(format.variant); }

std::string name_of(const QuantFormat&) { return "nvfp4"; }

// Rows are whole groups of 32, so that each begins at a whole byte of four-byte words.
bool fits(const QuantFormat& format, int64_t cols) {
  return cols > 0 && cols % (2 * kGroup) == 0 && outer_of(format) <= OuterScale::kDivisor &&
         format == nvfp4_of(outer_of(format));
}

void lay_out_parts(Weight& weight) {
  weight.parts.codes = unplaced({weight.rows, weight.cols / 2}, DType::kU8);
  weight.parts.scales = unplaced({weight.rows, weight.cols / kGroup}, DType::kF8E4M3);
  if (outer_of(weight.format) == OuterScale::kNone) return;
  weight.parts.outer_scale = unplaced({1}, DType::kF32);
}

/// The factor of all numbers, from the bytes of the outer scale.
float outer_factor(const QuantFormat& format, const std::byte* bytes) {
  if (outer_of(format) == OuterScale::kNone) return 1.0f;
  float outer;
  std::memcpy(&outer, bytes, sizeof(outer));
  return outer_of(format) == OuterScale::kDivisor ? 1.0f / outer : outer;
}

void decode(const Weight& weight, int64_t row, std::span<float> out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(host_ptr<std::byte>(weight.parts.codes)) +
                      row * (weight.cols / 2);
  const auto* scales = reinterpret_cast<const uint8_t*>(host_ptr<std::byte>(weight.parts.scales)) +
                       row * (weight.cols / kGroup);
  const float outer = outer_factor(
      weight.format,
      weight.parts.outer_scale.is_null() ? nullptr : host_ptr<std::byte>(weight.parts.outer_scale));
  for (int64_t c = 0; c < weight.cols; ++c) {
    const auto code = static_cast<uint8_t>(codes[c / 2] >> (c % 2 * 4) & 15);
    out[static_cast<size_t>(c)] = e2m1_to_float(code) * e4m3_to_float(scales[c / kGroup]) * outer;
  }
}

std::optional<QuantFormat> in_memory(const QuantFormat& format, int64_t, int64_t cols) {
  if (cols % 64 != 0) return std::nullopt;
  const QuantFormat blocks = QuantFormat::of(*find_format("nvfp4_gguf"));
  return outer_of(format) == OuterScale::kNone ? blocks : blocks.with_outer_scale();
}

void convert(const Weight& stored, const Parts<std::span<std::byte>>& from, int64_t begin,
             int64_t count, const Parts<std::span<std::byte>>& to) {
  const int64_t groups = stored.cols / kGroup;
  const auto* codes = reinterpret_cast<const uint8_t*>(from.codes.data()) + begin * groups * 8;
  const auto* scales = reinterpret_cast<const uint8_t*>(from.scales.data()) + begin * groups;
  auto* block = reinterpret_cast<uint8_t*>(to.codes.data());
  for (int64_t i = 0; i < count * groups; i += 4, block += 36) {
    for (int64_t g = 0; g < 4; ++g, codes += 8) {
      const uint8_t scale = scales[i + g];
      // Blocks have no sign of a scale.
      const uint64_t signs = (scale & 0x80u) != 0 ? 0x8888888888888888u : 0;
      const uint64_t halves = blocks::halves_of_16(codes) ^ signs;
      block[g] = scale & 0x7fu;
      std::memcpy(block + 4 + 8 * g, &halves, 8);
    }
  }
  if (outer_of(stored.format) == OuterScale::kNone || begin != 0) return;
  const float outer = outer_factor(stored.format, from.outer_scale.data());
  std::memcpy(to.outer_scale.data(), &outer, sizeof(outer));
}

}  // namespace
}  // namespace nvfp4

const FormatTraits nvfp4_format = {.name = "nvfp4",
                                   .to_string = nvfp4::name_of,
                                   .is_valid = nvfp4::fits,
                                   .lay_out = nvfp4::lay_out_parts,
                                   .decode_row = nvfp4::decode,
                                   .in_memory = nvfp4::in_memory,
                                   .convert_rows = nvfp4::convert};

}  // namespace moeflux
