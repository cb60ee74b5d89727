// Narrow affine groups as GGML's types have them for matrix units: w = scale * code + bias. A row's
// split in shared memory has its codes, then, at a multiple of 32 bytes, scales and biases of every
// 32 columns. Whole numbers have zero points in place of biases, w = scale * (code - zero).
#pragma once

#include "backend/gpu/kernels/matmul/ggml_codes.h"
#include "backend/gpu/kernels/matmul/ggml_params.h"
#include "backend/gpu/kernels/matmul/mma_product.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Four codes of 4 bits, the first in the lowest ones, become bytes.
MF_FN u32 bytes_of_nibbles(u32 codes) {
  const u32 two = (codes & 0xffu) | (codes << 8u & 0x00ff0000u);
  return (two | two << 4u) & 0x0f0f0f0fu;
}

/// Scales of the upper rows or the lower ones, or biases, each in every other lane.
MF_FN u64 lane_scales(MF_T t, MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) added) {
  return (t.lane & 1u) == 0u ? MF_ADDRESS_OF(scales) : MF_ADDRESS_OF(added);
}

/// Bytes of a scale, and scales from one to the next.
MF_FN u32 affine_scale_bytes(MmaMatrix m) { return m.scales >= kFormatF32 ? 4u : 2u; }
MF_FN u32 affine_scale_step(MmaMatrix m) { return m.scales == kScalesAndZeros ? 2u : 1u; }
/// Brings the scales of so many columns from `first` on, of which the row's begin at `row`.
MF_FN void copy_affine_scales(MF_T t, MmaMatrix m, u64 row, u32 first, u32 columns,
                              MF_SHARED(u32) to) {
  const u32 bytes = affine_scale_bytes(m);
  if (m.wide_scales != 0u) {
    MF_GLOBAL(const u8) from = MF_AT(t, const u8, row) + first / kNarrowGroup * bytes;
    MF_ROLLED
    for (u32 i = 0u; i < columns / kNarrowGroup * bytes / 4u; i += 4u) {
      copy_async4(t, to + i, MF_CAST(const u32, from) + i);
    }
  } else if (bytes == 4u) {
    MF_GLOBAL(const u32) from = MF_AT(t, const u32, row);
    MF_ROLLED
    for (u32 i = 0u; i < columns / kNarrowGroup; ++i) {
      const u32 group = (first + i * kNarrowGroup) >> m.group_shift;
      copy_async1(t, to + i, from + group * affine_scale_step(m));
    }
  } else {
    MF_GLOBAL(const u16) from = MF_AT(t, const u16, row) + first / kNarrowGroup;
    MF_ROLLED
    for (u32 i = 0u; i < columns / kMmaBlock; ++i) {
      to[i] = static_cast<u32>(from[2u * i]) | static_cast<u32>(from[2u * i + 1u]) << 16u;
    }
  }
}

/// The factor of a matrix is the format of its scales, as bits.
template <u32 BITS, u32 SCALE_BYTES>
struct GgmlAffine : GgmlLowBits<4u, 2u> {
  enum : u32 { kOuter = 1 };
  static MF_FN_MEMBER u32 low_piece(u32 part) { return part; }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    const W2 first = low_pair(t, at, block, piece, 0u);
    const W2 second = low_pair(t, at, block, piece, 1u);
    const W4 codes = {{first.v[0], first.v[1], second.v[0], second.v[1]}};
    return codes;
  }
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    MF_SHARED(u32)
    from = MF_SHARED_AT(t, u32, at + (block * 8u + piece * 2u + half) * BITS);
    const W2 pair = {{from[0], BITS == 4u ? from[0] >> 16u : from[1]}};
    return pair;
  }
  static MF_FN_MEMBER u32 code(u32 low, u32, u32, u32) {
    return BITS == 4u ? bytes_of_nibbles(low) : low;
  }
  /// As they are stored.
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    enum : u32 { kBehind = 32u + u32{AffineSplit<BITS, SCALE_BYTES>::kCodeBytes} };
    MF_SHARED(u32)
    scales = MF_SHARED_AT(t, u32, (at & ~31u) + (kBehind + block * (2u * SCALE_BYTES)));
    MF_SHARED(u32) biases = scales + kNarrowScales * SCALE_BYTES / 4u;
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) {
      const u32 word = SCALE_BYTES == 4u ? i : 0u;
      const u32 shift = SCALE_BYTES == 4u ? 0u : 16u * i;
      to[i].scale = as_float(scales[word] >> shift);
      to[i].bias = as_float(biases[word] >> shift);
    }
  }
  static MF_FN_MEMBER GgmlScale with_outer(GgmlScale stored, f32 outer) {
    const u32 format = as_bits(outer);
    if (SCALE_BYTES == 4u) {
      return format == kScalesAndZeros ? scale_around(stored.scale, stored.bias) : stored;
    }
    const GgmlScale own = {mma_scale(as_bits(stored.scale), 0u, format),
                           mma_scale(as_bits(stored.bias), 0u, format)};
    return own;
  }
};
#define MF_AFFINE_CODES(name, bits, scale_bytes) \
  template <>                                    \
  struct GgmlCodes<kGgml_##name> : GgmlAffine<bits, scale_bytes> {};
MF_AFFINE_MMA_TYPES(MF_AFFINE_CODES)
#undef MF_AFFINE_CODES

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
