// 16 rows of a matrix in one of GGML's types times a split of one row of activations: mma_part.h
// for blocks as files have them. Copies bring the bytes of a split; where they are multiplied each
// lane makes codes and scales of the blocks that it needs.
#pragma once

#include "backend/gpu/kernels/matmul/affine_codes.h"
#include "backend/gpu/kernels/matmul/fp8_codes.h"
#include "backend/gpu/kernels/matmul/ggml_codes.h"
#include "backend/gpu/kernels/matmul/ggml_grid_codes.h"
#include "backend/gpu/kernels/matmul/ggml_low_codes.h"
#include "backend/gpu/kernels/matmul/ggml_octets.h"
#include "backend/gpu/kernels/matmul/ggml_one_codes.h"
#include "backend/gpu/kernels/matmul/ggml_params.h"
#include "backend/gpu/kernels/matmul/mma_part.h"
#include "backend/gpu/kernels/matmul/mma_product.h"
#include "backend/gpu/kernels/matmul/mma_q6_k_part.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// The factor of a matrix: that at `added`, or 1.
MF_FN f32 ggml_outer(MmaMatrix m, MF_GLOBAL(const u8) added) {
  return m.scales == kFormatF32 && m.bits != kMmaFp8 ? MF_CAST(const f32, added)[0] : 1.0f;
}

/// The rows of a tile, 8 of one place and 8 of another, on their way to shared memory. Nothing is
/// read outside of the matrix.
struct GgmlRows {
  MmaMatrix m;
  u32 cols;
  u32 step;  // rows from a tile to the next: 16 or 8
  MF_GLOBAL(const u8) upper;
  MF_GLOBAL(const u8) lower;
  u32 upper_skew;  // bytes from a multiple of 32 to where they begin
  u32 lower_skew;
  f32 outer;   // in lane 1 the upper matrix's factor, in lane 17 the lower one's
  u64 scales;  // where they lie apart: lane_scales(), from lane 16 on of the lower matrix

  /// True when all rows begin at multiples of 16 bytes.
  MF_FN_MEMBER bool has_wide_rows() const {
    return (upper_skew | lower_skew | m.row_bytes) % 16u == 0u;
  }
  /// A batch of copies.
  MF_FN_MEMBER void issue(MF_T t, u32 at, u32 tile, u32 split) const {
    const u32 begin = split * m.split_bytes;
    const u32 left = m.row_bytes - begin;
    const u32 bytes = left < m.split_bytes ? left : m.split_bytes;
    const u32 first = at + kMmaGgmlHeadWords;
    if (has_wide_rows() && (tile + 1u) * step <= m.rows) {
      copy_wide_rows(t, at, first, tile * step, begin, bytes);
    } else {
      copy_any_rows(t, at, first, tile, begin, bytes);
    }
    if (t.lane == 0u) {
      const u32 blocks = cols / kMmaBlock - split * kMmaSplitBlocks;
      const u32 most = kMmaSplitBlocks;
      MF_SHARED_AT(t, u32, at * 4u)[kMmaGgmlLastBlock] = (blocks < most ? blocks : most) - 1u;
    }
    if (t.lane % 16u == 1u) {
      MF_SHARED_AT(t, f32, at * 4u)[kMmaGgmlOuter + t.lane / 16u] = outer;
    }
    if (m.bits == kMmaFp8 && t.lane % 16u == 0u) issue_fp8(t, at, tile, split);
  }
  /// Narrow groups: where the scales of a row of a tile begin, or its biases, which a lane brings.
  MF_FN_MEMBER u64 affine_row(MF_T t, u32 tile) const {
    const u32 own = own_row(tile * step, t.lane / 2u);
    const u64 row = own < m.rows ? own : m.rows - 1u;
    const u64 skip = row * (((cols - 1u) >> m.group_shift) + 1u) *
                     (affine_scale_bytes(m) * affine_scale_step(m));
    if (affine_scale_step(m) == 1u) return scales + skip;
    const u32 from = t.lane & ~1u;
    const u64 high = simd_shuffle(t, static_cast<u32>(scales >> 32u), from);
    return (high << 32u | simd_shuffle(t, static_cast<u32>(scales), from)) + skip +
           (t.lane & 1u) * 4u;
  }
  /// Brings these in the same batch as codes, and their format.
  MF_FN_MEMBER void issue_affine(MF_T t, u32 at, u64 row, u32 split) const {
    if (t.lane % 16u == 1u) {
      MF_SHARED_AT(t, u32, at * 4u)[kMmaGgmlOuter + t.lane / 16u] = m.scales;
    }
    const u32 bytes = affine_scale_bytes(m);
    const u32 first = split * kMmaSplit;
    const u32 left = cols - first < kMmaSplit ? cols - first : static_cast<u32>(kMmaSplit);
    MF_SHARED(u32)
    to = MF_SHARED_AT(t, u32,
                      (at + kMmaGgmlHeadWords + t.lane / 2u * m.row_words) * 4u + 32u +
                          m.split_bytes + (t.lane & 1u) * (kNarrowScales * bytes));
    copy_affine_scales(t, m, row, first, left, to);
  }
  /// Where the scales of the split are, which are read where they are needed. No scale has columns
  /// of two splits unless it has all of these.
  MF_FN_MEMBER void issue_fp8(MF_T t, u32 at, u32 tile, u32 split) const {
    const u32 bytes = m.scales == kScalesE8m0 ? 1u : m.scales == kFormatF32 ? 4u : 2u;
    const u64 from = scales + static_cast<u64>(split * kMmaSplit >> m.group_shift) * bytes;
    MF_SHARED(u32) to = MF_SHARED_AT(t, u32, (at + kMmaFp8Scales + t.lane / 8u) * 4u);
    to[0] = static_cast<u32>(from);
    to[1] = static_cast<u32>(from >> 32u);
    if (t.lane == 0u) MF_SHARED_AT(t, u32, at * 4u)[kMmaFp8Row] = tile * step;
  }

  /// Rows that all exist, and whose splits begin at the same byte of a piece. 16 lanes have the
  /// pieces of a row, two lanes the last ones if these are few.
  MF_FN_MEMBER void copy_wide_rows(MF_T t, u32 at, u32 first, u32 row, u32 begin, u32 bytes) const {
    const u32 within = begin % 16u;
    const u32 pieces = (within + bytes + 15u) / 16u;
    const u32 last = pieces % 16u <= 2u ? pieces / 16u * 16u : pieces;
    MF_ROLLED
    for (u32 piece = t.lane % 16u; piece < last; piece += 16u) {
      MF_UNROLL
      for (u32 h = 0u; h < 2u; ++h) copy_wide_half(t, first, row, h, begin - within, piece);
    }
    if (last + t.lane % 2u < pieces) {
      copy_wide_piece(t, first, row, t.lane / 2u, begin - within, last + t.lane % 2u);
    }
    if (t.lane < kMmaRows) {
      MF_SHARED_AT(t, u32, at * 4u)
      [t.lane] =
          (first + t.lane * m.row_words) * 4u + odd_piece(row, t.lane, begin - within) + within;
    }
  }
  /// 16 where a row begins between multiples of 32, in memory and so in shared memory.
  MF_FN_MEMBER u32 odd_piece(u32 row, u32 r, u32 begin) const {
    const u32 skew = r < kMmaHalfRows ? upper_skew : lower_skew;
    return (skew + own_row(row, r) * m.row_bytes + begin) & 16u;
  }
  MF_FN_MEMBER u32 own_row(u32 row, u32 r) const {
    return row + (r < kMmaHalfRows ? r : r + step - kMmaRows);
  }
  /// A piece of every other row of half `h`, which all begin alike between multiples of 32.
  MF_FN_MEMBER void copy_wide_half(MF_T t, u32 first, u32 row, u32 h, u32 begin, u32 piece) const {
    const u32 r = h * kMmaHalfRows + t.lane / 16u;
    MF_GLOBAL(const u8)
    from = (h == 0u ? upper : lower) +
           (static_cast<u64>(own_row(row, r)) * m.row_bytes + begin + piece * 16u);
    u32 to = (first + r * m.row_words + piece * 4u) * 4u + odd_piece(row, r, begin);
    MF_UNROLL
    for (u32 i = 0u; i < kMmaHalfRows / 2u; ++i) {
      copy_async4(t, MF_SHARED_AT(t, u32, to), MF_CAST(const u32, from));
      from = from + 2u * m.row_bytes;
      to += 8u * m.row_words;
    }
  }
  MF_FN_MEMBER void copy_wide_piece(MF_T t, u32 first, u32 row, u32 r, u32 begin, u32 piece) const {
    MF_GLOBAL(const u8) data = r < kMmaHalfRows ? upper : lower;
    const u32 to = (first + r * m.row_words + piece * 4u) * 4u + odd_piece(row, r, begin);
    const u64 from = static_cast<u64>(own_row(row, r)) * m.row_bytes + (begin + piece * 16u);
    copy_async4(t, MF_SHARED_AT(t, u32, to), MF_CAST(const u32, data + from));
  }

  /// Any rows. 16 lanes have the pieces of a row; rows with others on both sides need no look at
  /// where the matrix ends.
  MF_FN_MEMBER void copy_any_rows(MF_T t, u32 at, u32 first, u32 tile, u32 begin, u32 bytes) const {
    if (tile == 0u || (tile + 1u) * step >= m.rows) {
      return copy_last_rows(t, at, first, tile, begin, bytes);
    }
    MF_ROLLED
    for (u32 h = 0u; h < 2u; ++h) {
      MF_GLOBAL(const u8) data = h == 0u ? upper : lower;
      u32 r = h * kMmaHalfRows + t.lane / 16u;
      u64 from = static_cast<u64>(own_row(tile * step, r)) * m.row_bytes + begin;
      MF_UNROLL
      for (u32 i = 0u; i < kMmaHalfRows / 2u; ++i) {
        const u32 skew = (static_cast<u32>(from) + (h == 0u ? upper_skew : lower_skew)) % 32u;
        const u32 to = (first + r * m.row_words) * 4u;
        if (t.lane % 16u == 0u) MF_SHARED_AT(t, u32, at * 4u)[r] = to + skew;
        MF_ROLLED
        for (u32 piece = t.lane % 16u * 16u; piece < skew + bytes; piece += 256u) {
          copy_async4(t, MF_SHARED_AT(t, u32, to + piece),
                      MF_CAST(const u32, data + (from + piece - skew)));
        }
        r += 2u;
        from += 2u * m.row_bytes;
      }
    }
  }
  /// Past the last row it is multiplied again. Lanes take the pieces of all rows in turn.
  MF_FN_MEMBER void copy_last_rows(MF_T t, u32 at, u32 first, u32 tile, u32 begin,
                                   u32 bytes) const {
    const u32 pieces = (31u + bytes + 15u) / 16u;
    const u32 inverse = 65536u / pieces + 1u;
    const u64 end = static_cast<u64>(m.rows) * m.row_bytes;
    MF_ROLLED
    for (u32 i = t.lane; i < kMmaRows * pieces; i += 32u) {
      const u32 r = i * inverse >> 16u;
      const u32 piece = i - r * pieces;
      const u32 row = own_row(tile * step, r);
      const u64 from = static_cast<u64>(row < m.rows ? row : m.rows - 1u) * m.row_bytes + begin;
      const u32 skew =
          (static_cast<u32>(from) + (r < kMmaHalfRows ? upper_skew : lower_skew)) % 32u;
      const u32 to = (first + r * m.row_words) * 4u;
      if (piece == 0u) MF_SHARED_AT(t, u32, at * 4u)[r] = to + skew;
      if (piece * 16u >= skew + bytes) continue;
      copy_piece(t, to + piece * 16u, r < kMmaHalfRows ? upper : lower, from + piece * 16u - skew,
                 end);
    }
  }
  static MF_FN_MEMBER void copy_piece(MF_T t, u32 to, MF_GLOBAL(const u8) data, u64 from, u64 end) {
    MF_SHARED(u32) place = MF_SHARED_AT(t, u32, to);
    if (from < end && from + 16u <= end) {  // below 0 is past the end
      copy_async4(t, place, MF_CAST(const u32, data + from));
      return;
    }
    MF_ROLLED
    for (u32 i = 0u; i < 4u; ++i) {
      u32 word = 0u;
      MF_ROLLED
      for (u32 j = 0u; j < 4u; ++j) {
        const u64 byte = from + (i * 4u + j);
        if (byte < end) word |= static_cast<u32>(data[byte]) << (8u * j);
      }
      place[i] = word;
    }
  }
};

/// Block `block` of two rows, of matrices with these factors, times a block of activations, whose
/// sums are at `x_sums`: one sum of each row.
template <class Type>
MF_FN void multiply_ggml_block(MF_T t, MF_LOCAL(f32) sums, u32 above_at, u32 below_at, u32 block,
                               MF_SHARED(f32) outers, MF_SHARED(u32) x_bytes,
                               MF_SHARED(f32) x_sums) {
  enum : u32 {
    kParts = 4u / static_cast<u32>(Type::kScales),
    kPair = Type::kLooksUp == 1u && kParts > 1u ? 2u : 1u,  // parts at once, of the same bytes
  };
  GgmlBlock<Type> above;
  GgmlBlock<Type> below;
  above.load(t, above_at, block, outers);
  below.load(t, below_at, block, outers + 1);
  sums[0] = sums[1] = 0.0f;
  MF_UNROLL
  for (u32 g = 0u; g < Type::kScales; ++g) {
    i32 codes[4] = {0, 0, 0, 0};
    MF_UNROLL
    for (u32 pair = g * kParts; pair < (g + 1u) * kParts; pair += kPair) {
      W4 x[kPair];
      MF_UNROLL
      for (u32 i = 0u; i < kPair; ++i) x[i] = load4(x_bytes + (pair + i) * 4u);
      MF_UNROLL
      for (u32 o = 0u; o < 4u; o += 2u) {
        MF_UNROLL
        for (u32 i = 0u; i < kPair; ++i) {
          const W2 a = above.codes(block, (pair + i) * 2u + o / 2u);
          const W2 b = below.codes(block, (pair + i) * 2u + o / 2u);
          matrix_multiply_add_bytes(t, codes, a.v[0], b.v[0], a.v[1], b.v[1], x[i].v[o],
                                    x[i].v[o + 1u]);
        }
      }
    }
    const f32 sum = Type::kScales == 1u   ? x_sums[0] + x_sums[1]
                    : Type::kScales == 2u ? x_sums[g]
                                          : x_sums[kGgmlSumQuarters + g];
    sums[0] = add_ggml_products(sums[0], Type::whole(codes[0] * 256 + codes[1], sum),
                                above.scales[g], sum);
    sums[1] = add_ggml_products(sums[1], Type::whole(codes[2] * 256 + codes[3], sum),
                                below.scales[g], sum);
  }
}
/// The same of any type; `wide`: rows begin at multiples of 16 bytes.
MF_FN void multiply_ggml_block_of(MF_T t, u32 type, bool wide, MF_LOCAL(f32) sums, u32 above_at,
                                  u32 below_at, u32 block, MF_SHARED(f32) outers,
                                  MF_SHARED(u32) x_bytes, MF_SHARED(f32) x_sums) {
  if (wide && type == kGgml_q4_k) {
    multiply_ggml_block<GgmlWideQ4K>(t, sums, above_at, below_at, block, outers, x_bytes, x_sums);
    return;
  }
  if (wide && type == kGgml_q5_k) {
    multiply_ggml_block<GgmlQ5K<true>>(t, sums, above_at, below_at, block, outers, x_bytes, x_sums);
    return;
  }
  switch (type) {
#define MF_GGML_CASE(name)                                                                   \
  case kGgml_##name:                                                                         \
    multiply_ggml_block<GgmlCodes<kGgml_##name>>(t, sums, above_at, below_at, block, outers, \
                                                 x_bytes, x_sums);                           \
    return;
    MF_GGML_MMA_TYPES(MF_GGML_CASE)
#undef MF_GGML_CASE
#define MF_AFFINE_CASE(name, bits, scale_bytes)                                              \
  case kGgml_##name:                                                                         \
    multiply_ggml_block<GgmlCodes<kGgml_##name>>(t, sums, above_at, below_at, block, outers, \
                                                 x_bytes, x_sums);                           \
    return;
    MF_AFFINE_MMA_TYPES(MF_AFFINE_CASE)
#undef MF_AFFINE_CASE
  }
}
/// The same in kernels of any type, or of one.
struct GgmlAnyBlock {
  static MF_FN_MEMBER void multiply(MF_T t, u32 type, bool wide, MF_LOCAL(f32) sums, u32 above_at,
                                    u32 below_at, u32 block, MF_SHARED(f32) outers,
                                    MF_SHARED(u32) x_bytes, MF_SHARED(f32) x_sums) {
    multiply_ggml_block_of(t, type, wide, sums, above_at, below_at, block, outers, x_bytes, x_sums);
  }
};
template <u32 TYPE>
struct GgmlOneBlock {
  static MF_FN_MEMBER void multiply(MF_T t, u32, bool, MF_LOCAL(f32) sums, u32 above_at,
                                    u32 below_at, u32 block, MF_SHARED(f32) outers,
                                    MF_SHARED(u32) x_bytes, MF_SHARED(f32) x_sums) {
    multiply_ggml_block<GgmlOneCodes<TYPE>>(t, sums, above_at, below_at, block, outers, x_bytes,
                                            x_sums);
  }
};
template <>
struct GgmlOneBlock<kMmaGgml> : GgmlAnyBlock {};
template <>
struct GgmlOneBlock<kGgml_q4_k> : GgmlAnyBlock {};
template <>
struct GgmlOneBlock<kGgml_q5_k> : GgmlAnyBlock {};

/// 16 codes of two rows times both bytes of activations: sums by the byte of the codes. Half of a
/// lane's sums are of the upper row; of the activations' 256s, then of their ones.
struct Fp8OneSums {
  i32 v[3][4];

  MF_FN_MEMBER void clear() {
    MF_UNROLL
    for (u32 i = 0u; i < 12u; ++i) v[i / 4u][i % 4u] = 0;
  }
  MF_FN_MEMBER void add(MF_T t, W4 above, W4 below, W4 x, MF_LOCAL(u32) nan) {
    MF_UNROLL
    for (u32 o = 0u; o < 4u; o += 2u) {
      const Fp8Digits a[2] = {fp8_digits(above.v[o], nan), fp8_digits(above.v[o + 1u], nan)};
      const Fp8Digits b[2] = {fp8_digits(below.v[o], nan + 1),
                              fp8_digits(below.v[o + 1u], nan + 1)};
      MF_UNROLL
      for (u32 d = 0u; d < 3u; ++d) {
        matrix_multiply_add_signed_bytes(t, v[d], a[0].v[d], b[0].v[d], a[1].v[d], b[1].v[d],
                                         x.v[o], x.v[o + 1u]);
      }
    }
  }
  /// Adds a row's, times its scale.
  MF_FN_MEMBER f32 added(f32 total, u32 row, f32 scale) const {
    const u32 high = row * 2u;
    const u32 low = high + 1u;
    total = add_fp8_pair(total, v[2][high], v[2][low] + v[1][high], fp8_upper_scale(scale));
    return add_fp8_pair(total, v[1][low] + v[0][high], v[0][low], fp8_lower_scale(scale));
  }
};
/// 64 columns of two rows of FP8, from these bytes of shared memory, with HALVES scales each.
template <u32 HALVES>
MF_FN void multiply_fp8_block(MF_T t, MF_LOCAL(f32) sums, u32 above_at, u32 below_at, bool wide,
                              MF_LOCAL(const f32) scales, MF_SHARED(u32) x_bytes) {
  sums[0] = sums[1] = 0.0f;
  u32 nan[2] = {0u, 0u};
  MF_UNROLL
  for (u32 h = 0u; h < HALVES; ++h) {
    Fp8OneSums parts;
    parts.clear();
    MF_ROLLED
    for (u32 i = 0u; i < 4u / HALVES; ++i) {
      // Lanes have blocks of their own, which begin in the same bank.
      const u32 piece = h * 2u + (i ^ (t.lane & (4u / HALVES - 1u)));
      const u32 above = above_at + piece * 16u;
      const u32 below = below_at + piece * 16u;
      parts.add(t, wide ? load4(MF_SHARED_AT(t, u32, above)) : shared_piece(t, above),
                wide ? load4(MF_SHARED_AT(t, u32, below)) : shared_piece(t, below),
                load4(x_bytes + piece * 4u), nan);
    }
    MF_UNROLL
    for (u32 r = 0u; r < 2u; ++r) sums[r] = parts.added(sums[r], r, scales[r * HALVES + h]);
  }
  MF_UNROLL
  for (u32 r = 0u; r < 2u; ++r) sums[r] = fp8_poisoned(sums[r], nan[r]);
}

/// Tiles of any type, or of one that the kernel knows.
template <u32 TYPE>
struct MmaPart<TYPE, true> {
  enum : u32 { kIsGgml = 1 };
  GgmlRows rows;

  static MF_FN_MEMBER MmaPart of_matrix(MF_T t, MmaMatrix m, u32 cols, MF_GLOBAL(const u8) data,
                                        MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) added) {
    const MmaPart part = {{m, cols, kMmaRows, data, data, m.skew, m.skew, ggml_outer(m, added),
                           lane_scales(t, scales, added)}};
    return part;
  }
  /// `own_added`: in odd lanes, where the factor or the biases of the upper matrix are, or from
  /// lane 17 on of the lower one; in even ones where their scales are.
  static MF_FN_MEMBER MmaPart of_halves(MF_T t, MmaMatrix m, u32 cols, u32 step, u64 upper,
                                        u64 lower, u64 own_added) {
    const MmaPart part = {{m, cols, step, MF_AT(t, const u8, upper), MF_AT(t, const u8, lower),
                           skew_of(upper), skew_of(lower), own_outer(t, m, own_added), own_added}};
    return part;
  }
  static MF_FN_MEMBER f32 own_outer(MF_T t, MmaMatrix m, u64 own_added) {
    if (m.scales != kFormatF32 || m.bits == kMmaFp8 || t.lane % 16u != 1u) return 1.0f;
    return MF_AT(t, const f32, own_added)[0];
  }
  MF_FN_MEMBER void move(MF_T t, u64 upper_at, u64 lower_at, u64 own_added) {
    rows.outer = own_outer(t, rows.m, own_added);
    rows.scales = own_added;
    rows.upper = MF_AT(t, const u8, upper_at);
    rows.lower = MF_AT(t, const u8, lower_at);
    rows.upper_skew = skew_of(upper_at);
    rows.lower_skew = skew_of(lower_at);
  }
  /// As place_grid(), as multiply() wants it.
  static MF_FN_MEMBER void place_grid(MF_T t, u32 type) { GgmlOneGrid<TYPE>::place(t, type); }
  static MF_FN_MEMBER u32 skew_of(u64 address) { return static_cast<u32>(address) % 32u; }
  MF_FN_MEMBER u32 tile_rows() const { return rows.step; }
  MF_FN_MEMBER u32 format() const { return TYPE == kMmaGgml ? rows.m.bits : TYPE; }
  MF_FN_MEMBER void has_wide_rows() {}
  static MF_FN_MEMBER u32 words(MmaWalk walk) { return walk.place_words; }

  /// KNOWN: the type, if whoever asks knows it.
  template <u32 KNOWN = kMmaAnyType>
  MF_FN_MEMBER void issue(MF_T t, u32 at, u32 tile, u32 split) const {
    rows.issue(t, at, tile, split);
    if (TYPE > kMmaFp8 || (TYPE == kMmaGgml && KNOWN == kMmaAnyType && format() > kMmaFp8)) {
      rows.issue_affine(t, at, rows.affine_row(t, tile), split);
    }
  }
  /// As of affine rows: lanes have two blocks of a row each.
  MF_FN_MEMBER void multiply(MF_T t, u32 at, u32 staged, MmaOneShared shared,
                             MF_SHARED(f32) to) const {
    const u32 g = t.lane / 4u;
    const u32 own = t.lane & 3u;
    const u32 block = staged * kMmaSplitBlocks + own * 2u;
    const u32 bytes_at = shared.bytes_of(g, own, block);
    MF_SHARED(u32) head = MF_SHARED_AT(t, u32, at * 4u);
    const u32 above_at = head[g];
    const u32 below_at = head[g + kMmaHalfRows];
    const u32 last = head[kMmaGgmlLastBlock];
    const bool wide = rows.has_wide_rows();
    if (format() == kGgml_q6_k) {
      multiply_q6_k(t, above_at, below_at, last, wide, staged * kMmaSplitBlocks, shared, to);
      return;
    }
    MF_SHARED(f32) outers = MF_SHARED_AT(t, f32, (at + kMmaGgmlOuter) * 4u);
    MF_SHARED(f32)
    x_sums = MF_SHARED_AT(t, f32, (shared.sums + block * u32{kGgmlSumWords}) * 4u);
    MmaProducts parts;
    MF_ROLLED
    for (u32 j = 0u; j < 2u; ++j) {
      // Where columns end, the last block's codes meet activations of zero.
      const u32 within = own * 2u + j < last ? own * 2u + j : last;
      f32 sums[2] = {0.0f, 0.0f};
      MF_SHARED(u32) x_bytes = MF_SHARED_AT(t, u32, (bytes_at + j * kMmaBlockWords) * 4u);
      if (format() == kMmaFp8) {
        const u32 skip = within * kMmaBlock;
        if (fp8_has_halves(rows.m)) {
          multiply_fp8<2u>(t, sums, head, above_at + skip, below_at + skip, skip, wide, x_bytes);
        } else {
          multiply_fp8<1u>(t, sums, head, above_at + skip, below_at + skip, skip, wide, x_bytes);
        }
      } else {
        GgmlOneBlock<TYPE>::multiply(t, format(), wide, sums, above_at, below_at, within, outers,
                                     x_bytes, x_sums + j * u32{kGgmlSumWords});
      }
      MF_UNROLL
      for (u32 r = 0u; r < 2u; ++r) {
        if (j == 0u) parts.v[r][0] = sums[r];
        parts.v[r][1] = sums[r];
      }
    }
    store_mma_rows(t, parts, x_sums[kGgmlSumFactor], x_sums[kGgmlSumWords + kGgmlSumFactor], to);
  }

 private:
  /// The block from column `col` of the split on.
  template <u32 HALVES>
  MF_FN_MEMBER void multiply_fp8(MF_T t, MF_LOCAL(f32) sums, MF_SHARED(u32) head, u32 above_at,
                                 u32 below_at, u32 col, bool wide, MF_SHARED(u32) x_bytes) const {
    f32 scales[2u * HALVES];
    MF_UNROLL
    for (u32 r = 0u; r < 2u; ++r) {
      const u64 from =
          static_cast<u64>(head[kMmaFp8Scales + r * 2u + 1u]) << 32u | head[kMmaFp8Scales + r * 2u];
      const u32 own = rows.own_row(head[kMmaFp8Row], t.lane / 4u + r * kMmaHalfRows);
      const Fp8Scales of_row = fp8_row_scales(rows.m, rows.cols, MF_AT(t, const u8, from),
                                              own < rows.m.rows ? own : rows.m.rows - 1u);
      MF_UNROLL
      for (u32 h = 0u; h < HALVES; ++h) scales[r * HALVES + h] = of_row.at(col + h * 32u);
    }
    multiply_fp8_block<HALVES>(t, sums, above_at, below_at, wide, scales, x_bytes);
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
