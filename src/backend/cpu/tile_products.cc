#include "backend/cpu/tile_products.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/units.h"
#include "quant/format_traits.h"

namespace moeflux::cpu {
namespace {

constexpr size_t kCacheLine = 64;

/// values [cols / chunk][count][chunk] of kChunkBytes each.
template <size_t kChunkBytes>
void interleave(const TileShape& shape, const TileToken* tokens, int64_t count, std::byte* values) {
  constexpr auto kStep = static_cast<int64_t>(kChunkBytes);
  for (int64_t t = 0; t < count; ++t) {
    const auto* from = static_cast<const std::byte*>(tokens[t].values);
    std::byte* to = values + t * kStep;
    for (int64_t at = 0; at < shape.value_bytes(); at += kStep, to += count * kStep) {
      std::memcpy(to, from + at, kChunkBytes);
    }
  }
}

}  // namespace

size_t TileShape::block_bytes(int64_t tokens) const {
  const auto bytes = static_cast<uint64_t>(tokens * (value_bytes() + 2 * groups() * 4));
  return round_up(bytes, kCacheLine);
}

void TileRows::reset(const TileShape& shape, int64_t count) {
  shape_ = shape;
  const auto values = reinterpret_cast<std::uintptr_t>(
      values_.get(static_cast<size_t>(count * shape.value_bytes())));
  workspace(params_, 2 * count * shape.groups());
  workspace(tokens_, count);
  for (int64_t t = 0; t < count; ++t) {
    float* scales = params_.data() + 2 * t * shape.groups();
    tokens_[static_cast<size_t>(t)] = {
        reinterpret_cast<const void*>(values + static_cast<uintptr_t>(t * shape.value_bytes())),
        scales, scales + shape.groups()};
  }
}

void TileRows::fill(int64_t row, const float* x) {
  const TileToken& token = tokens_[static_cast<size_t>(row)];
  float* scales = params_.data() + 2 * row * shape_.groups();
  shape_.kernels->prepare(x, shape_.cols, shape_.group_size, const_cast<void*>(token.values),
                          scales, scales + shape_.groups());
}

TileBlock pack_block(const TileShape& shape, const TileToken* tokens, int64_t count,
                     std::byte* space) {
  const int64_t groups = shape.groups();
  std::byte* values = space;
  auto* scales = reinterpret_cast<float*>(space + count * shape.value_bytes());
  float* sums = scales + count * groups;
  const int64_t chunk_bytes =
      shape.kernels->chunk_of(shape.group_size) * shape.kernels->value_bytes;
  MF_CHECK(chunk_bytes == 16 || chunk_bytes == 32 || chunk_bytes == 64);
  if (chunk_bytes == 16) {
    interleave<16>(shape, tokens, count, values);
  } else if (chunk_bytes == 32) {
    interleave<32>(shape, tokens, count, values);
  } else {
    interleave<64>(shape, tokens, count, values);
  }
  for (int64_t t = 0; t < count; ++t) {
    for (int64_t g = 0; g < groups; ++g) {
      scales[g * count + t] = tokens[t].scales[g];
      sums[g * count + t] = tokens[t].sums[g];
    }
  }
  return {values, scales, sums, count};
}

void multiply(const TileProduct& p) {
  if (p.blocks.empty()) {
    return p.kernels->few({.w = p.w,
                           .x = p.tokens,
                           .tokens = p.count,
                           .panel_begin = p.panel_begin,
                           .panel_end = p.panel_end,
                           .out = p.out,
                           .out_row = p.out_row,
                           .next = p.next});
  }
  const auto blocks = static_cast<int64_t>(p.blocks.size());
  const int64_t at_once = kTileManyTokens / p.kernels->block_tokens;
  float* const* out = p.out;
  for (int64_t b = 0; b < blocks; b += at_once) {
    const int64_t count = std::min(at_once, blocks - b);
    p.kernels->many({.w = p.w,
                     .x = p.blocks.data() + b,
                     .blocks = count,
                     .panel_begin = p.panel_begin,
                     .panel_end = p.panel_end,
                     .out = out,
                     .out_row = p.out_row,
                     .next = p.next});
    for (int64_t i = 0; i < count; ++i) out += p.blocks[static_cast<size_t>(b + i)].tokens;
  }
}

TileMatrix tile_matrix(const Weight& weight, const BlockKernel* block) {
  TileMatrix matrix = {.tiles = bytes_of(weight.parts.codes),
                       .cols = weight.cols,
                       .type = ElementType::kF32,
                       .bits = 8,
                       .group_size = weight.format.group_size,
                       .block = block,
                       .outer_scale = 1.0f};
  if (block == nullptr) {
    matrix.type = element_type(weight.format.dtype);
    matrix.bits = weight.format.bits;
    return matrix;
  }
  matrix.group_size = block->group_size;
  if (weight.format.is_affine()) {
    matrix.type = element_type(weight.format.dtype);
    matrix.scale_rows = bytes_of(weight.parts.scales);
    matrix.bias_rows = bytes_of(weight.parts.offsets);
    return matrix;
  }
  if (weight.has(PartRole::kOuterScale)) {
    matrix.outer_scale = load_float(host_ptr<std::byte>(weight.parts.outer_scale), 0, DType::kF32);
  }
  return matrix;
}

namespace {

std::optional<BlockKind> affine_kind(const QuantFormat& format) {
  const bool known =
      (format.bits == 4 || format.bits == 8) &&
      (format.group_size == 32 || format.group_size == 64 || format.group_size == 128) &&
      format.order == WeightOrder::kRowMajor;
  if (!known) return std::nullopt;
  const auto first =
      static_cast<int>(format.bits == 4 ? BlockKind::kAffine4x32 : BlockKind::kAffine8x32);
  return static_cast<BlockKind>(first + format.group_size / 64);
}

}  // namespace

bool has_unit_products(const QuantFormat& format, int64_t cols) {
  if (cols % kUnitCols != 0) return false;
  if (format.is_affine()) {
    const int64_t least = format.dtype == DType::kF32 ? 2 * kUnitCols : kUnitCols;
    return (format.bits == 4 || format.bits == 8) && format.group_size % least == 0;
  }
  return block_kind(format).has_value();  // of GGML's types each has them
}

std::optional<BlockKind> block_kind(const QuantFormat& format) {
  if (format.is_affine()) return affine_kind(format);
  // By BlockKind.
  static const std::array<const FormatTraits*, static_cast<size_t>(BlockKind::kAffine4x32)> kKinds =
      {find_format("q4_0"),    find_format("q4_1"),       find_format("q5_0"),
       find_format("q5_1"),    find_format("q8_0"),       find_format("q2_k"),
       find_format("q3_k"),    find_format("q4_k"),       find_format("q5_k"),
       find_format("q6_k"),    find_format("iq4_nl"),     find_format("iq4_xs"),
       find_format("iq2_xxs"), find_format("iq2_xs"),     find_format("iq2_s"),
       find_format("iq3_xxs"), find_format("iq3_s"),      find_format("iq1_s"),
       find_format("iq1_m"),   find_format("mxfp4_gguf"), find_format("nvfp4_gguf"),
       find_format("q1_0"),    find_format("q2_0"),       find_format("q2_0_128"),
       find_format("tq1_0"),   find_format("tq2_0")};
  if (format.kind->block.elements == 0) return std::nullopt;
  const auto found = std::find(kKinds.begin(), kKinds.end(), format.kind);
  if (found == kKinds.end()) return std::nullopt;
  return static_cast<BlockKind>(found - kKinds.begin());
}

}  // namespace moeflux::cpu
