// The sums of matrix_tile.h for many tokens: rows of plain numbers or of FP8 times 16 tokens.
//
// A lane has the same packs of 8 columns and adds them in the same order, so bits are the same. It
// has 128 sums, of 8 rows and all tokens: a number that it reads from shared memory meets 8 rows or
// 16 tokens, where units of f32 are the limit. Rows and activations come in stages of 256 columns,
// one of which is on its way while another is multiplied. Lanes then exchange halves of what they
// have, step by step, as simd_sum() adds them.
#pragma once

#include "backend/gpu/kernels/matmul/matrix_tile.h"
#include "backend/gpu/kernels/matmul/params.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A row's 256 columns of a stage in shared memory, from byte `at`: half q of this lane's 8.
template <u32 FORMAT>
struct LargeTilePack {
  enum : u32 { kBytes = 2, kScaled = 0 };
  static MF_FN_MEMBER u32 place(u32 piece) { return piece * 4u; }
  static MF_FN_MEMBER void quad(MF_T t, u32 at, u32 q, f32, MF_LOCAL(f32) values) {
    const W2 pairs = load2(MF_SHARED_AT(t, u32, at + t.lane * 16u + q * 8u));
    MF_UNROLL
    for (u32 k = 0u; k < 4u; ++k) {
      const u16 bits = static_cast<u16>(pairs.v[k / 2u] >> (16u * (k % 2u)));
      values[k] = FORMAT == kFormatBf16 ? bf16_to_float(bits) : f16_to_float(bits);
    }
  }
};
template <>
struct LargeTilePack<kFormatF32> {
  enum : u32 { kBytes = 4, kScaled = 0 };
  static MF_FN_MEMBER u32 place(u32 piece) { return staged_at(piece * 4u); }
  static MF_FN_MEMBER void quad(MF_T t, u32 at, u32 q, f32, MF_LOCAL(f32) values) {
    const F4 four = load4(MF_SHARED_AT(t, f32, at) + staged_at(t.lane * 8u + q * 4u));
    MF_UNROLL
    for (u32 k = 0u; k < 4u; ++k) values[k] = four.v[k];
  }
};
template <>
struct LargeTilePack<kCoded_fp8> {
  enum : u32 { kBytes = 1, kScaled = 1 };
  static MF_FN_MEMBER u32 place(u32 piece) { return piece * 4u; }
  static MF_FN_MEMBER void quad(MF_T t, u32 at, u32 q, f32 scale, MF_LOCAL(f32) values) {
    fp8_quad(values, MF_SHARED_AT(t, u32, at + t.lane * 8u + q * 4u)[0], scale);
  }
};

/// Four rows of one place and four of another, which may be the next ones of the first.
struct LargeTileRows {
  MatrixLayout m;
  MF_GLOBAL(const u8) upper;
  MF_GLOBAL(const u8) lower;
  MF_GLOBAL(const u8) upper_scales;
  MF_GLOBAL(const u8) lower_scales;
  u32 first[2];
  u32 last;  // is multiplied again in place of rows behind it
  MF_GLOBAL(const f32) x;
  u64 x_stride;
  u32 x_row[kLargeTileCopies];  // of this thread's tokens, as large_tile_token() says

  MF_FN_MEMBER u32 row(u32 r) const {
    const u32 own = first[r / 4u] + r % 4u;
    return own < last ? own : last;
  }
};

/// The token of copy `copy` of a thread in a stage.
MF_FN u32 large_tile_token(MF_T t, u32 copy) {
  return t.index / (kLargeTileCols / 4u) + copy * (kLargeTileThreads / (kLargeTileCols / 4u));
}

/// Sum of row r and token j: v[r * kLargeTileTokens + j], of this lane's columns. reduce() adds
/// those of all lanes: lane l then has row l / 4 and, in v[i], token l % 4 * 4 + i.
template <u32 FORMAT>
struct LargeTileSums {
  typedef LargeTilePack<FORMAT> Pack;
  enum : u32 {
    kRowWords = kLargeTileCols * static_cast<u32>(Pack::kBytes) / 4u,
    kPieces = kRowWords / 4u,
    kOwnRowWords = u32{kLargeTileRows} * kRowWords,  // of a SIMD group
    kOwnCopies = u32{kLargeTileRows} * kPieces / 32u,
    kActivations = kLargeTileTokens * kLargeTileCols,
    kStage = kActivations + kLargeTileThreads / 32u * u32{kOwnRowWords},
  };
  f32 v[kLargeTileRows * kLargeTileTokens];

  static MF_FN_MEMBER u32 rows_at(MF_T t, u32 stage) {
    return stage * kStage + kActivations + t.simd * kOwnRowWords;
  }
  static MF_FN_MEMBER void issue(MF_T t, MF_LOCAL(const LargeTileRows) rows, u32 stage, u32 begin) {
    const u32 piece = t.index % (kLargeTileCols / 4u);
    if (begin + piece * 4u < rows->m.cols) {
      MF_UNROLL
      for (u32 i = 0u; i < kLargeTileCopies; ++i) {
        const u32 to =
            stage * kStage + large_tile_token(t, i) * kLargeTileCols + staged_at(piece * 4u);
        copy_async4(
            t, MF_SHARED_AT(t, u32, to * 4u),
            MF_CAST(const u32, rows->x + (rows->x_row[i] * rows->x_stride + begin + piece * 4u)));
      }
    }
    const u64 row_bytes = static_cast<u64>(rows->m.cols) * static_cast<u32>(Pack::kBytes);
    MF_UNROLL
    for (u32 i = 0u; i < kOwnCopies; ++i) {
      const u32 at = i * 32u + t.lane;
      const u32 own = at % kPieces;
      const u64 byte = static_cast<u64>(begin) * static_cast<u32>(Pack::kBytes) + own * 16u;
      if (byte >= row_bytes) continue;
      // The compiler knows which of both halves of the rows this is of.
      MF_GLOBAL(const u8) data = i < kOwnCopies / 2u ? rows->upper : rows->lower;
      const u32 to = rows_at(t, stage) + at / kPieces * kRowWords + Pack::place(own);
      copy_async4(t, MF_SHARED_AT(t, u32, to * 4u),
                  MF_CAST(const u32, data + (rows->row(at / kPieces) * row_bytes + byte)));
    }
    copies_commit(t);
  }
  /// The scales of this lane's columns.
  static MF_FN_MEMBER void load_scales(MF_T t, MF_LOCAL(const LargeTileRows) rows, u32 begin,
                                       MF_LOCAL(f32) scales) {
    const u32 c = begin + t.lane * 8u;
    MF_UNROLL
    for (u32 r = 0u; r < kLargeTileRows; ++r) {
      scales[r] = Pack::kScaled == 0u || c >= rows->m.cols
                      ? 0.0f
                      : fp8_scale_at(rows->m, r < 4u ? rows->upper_scales : rows->lower_scales,
                                     rows->row(r), c);
    }
  }
  /// Half q of each lane's columns; behind the last one, `scales` are those of the next stage.
  MF_FN_MEMBER void multiply_half(MF_T t, MF_LOCAL(const LargeTileRows) rows, u32 stage, u32 begin,
                                  u32 q, MF_LOCAL(f32) scales) {
    const u32 from = rows_at(t, stage) * 4u;
    f32 values[kLargeTileRows][4];
    MF_UNROLL
    for (u32 r = 0u; r < kLargeTileRows; ++r) {
      Pack::quad(t, from + r * (kRowWords * 4u), q, scales[r], values[r]);
    }
    if (q == 1u) load_scales(t, rows, begin + kLargeTileCols, scales);
    MF_SHARED(f32)
    x = MF_SHARED_AT(t, f32, stage * kStage * 4u) + staged_at(t.lane * 8u + q * 4u);
    MF_UNROLL
    for (u32 j = 0u; j < kLargeTileTokens; ++j) {
      const F4 own = load4(x + j * kLargeTileCols);
      MF_UNROLL
      for (u32 k = 0u; k < 4u; ++k) {
        MF_UNROLL
        for (u32 r = 0u; r < kLargeTileRows; ++r) {
          const u32 i = r * kLargeTileTokens + j;
          v[i] = mf_fma(values[r][k], own.v[k], v[i]);
        }
      }
    }
  }
  /// Registers do not do for scales and for the numbers of both halves.
  MF_FN_MEMBER void multiply_stage(MF_T t, MF_LOCAL(const LargeTileRows) rows, u32 stage, u32 begin,
                                   MF_LOCAL(f32) scales) {
    if (Pack::kScaled != 0u) {
      MF_ROLLED
      for (u32 q = 0u; q < 2u; ++q) multiply_half(t, rows, stage, begin, q, scales);
    } else {
      MF_UNROLL
      for (u32 q = 0u; q < 2u; ++q) multiply_half(t, rows, stage, begin, q, scales);
    }
  }
  MF_FN_MEMBER void multiply(MF_T t, MF_LOCAL(const LargeTileRows) rows) {
    MF_UNROLL
    for (u32 i = 0u; i < kLargeTileRows * kLargeTileTokens; ++i) v[i] = 0.0f;
    f32 scales[kLargeTileRows];
    issue(t, rows, 0u, 0u);
    load_scales(t, rows, 0u, scales);
    u32 stage = 0u;
    MF_ROLLED
    for (u32 begin = 0u; begin < rows->m.cols; begin += kLargeTileCols) {
      copies_wait<0u>(t);
      barrier(t);  // all threads' copies are there, and the stage before is read
      if (begin + kLargeTileCols < rows->m.cols) issue(t, rows, 1u - stage, begin + kLargeTileCols);
      if (begin + t.lane * 8u < rows->m.cols) multiply_stage(t, rows, stage, begin, scales);
      stage = 1u - stage;
    }
    reduce(t);
  }
  MF_FN_MEMBER void reduce(MF_T t) {
    exchange<64u, 16u>(t);
    exchange<32u, 8u>(t);
    exchange<16u, 4u>(t);
    exchange<8u, 2u>(t);
    exchange<4u, 1u>(t);
  }
  /// Lanes with this bit keep the upper half of 2 HALF sums, and send the other one to those
  /// without.
  template <u32 HALF, u32 BIT>
  MF_FN_MEMBER void exchange(MF_T t) {
    const bool is_upper = (t.lane & BIT) != 0u;
    constexpr u32 kAtOnce = HALF < 8u ? HALF : 8u;
    MF_UNROLL
    for (u32 first = 0u; first < HALF; first += kAtOnce) {
      f32 sent[kAtOnce];
      MF_UNROLL
      for (u32 i = 0u; i < kAtOnce; ++i) sent[i] = is_upper ? v[first + i] : v[first + i + HALF];
      simd_shuffles_xor<kAtOnce>(t, sent, BIT);
      MF_UNROLL
      for (u32 i = 0u; i < kAtOnce; ++i) {
        const f32 kept = is_upper ? v[first + i + HALF] : v[first + i];
        v[first + i] = kept + sent[i];
      }
    }
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
