// Products of matrices in GGML's types for many tokens: mma_multiply.h for blocks as files have
// them. SIMD groups bring the bytes of a split of their rows while they multiply the one before.
#pragma once

#include "backend/gpu/kernels/matmul/ggml_codes.h"
#include "backend/gpu/kernels/matmul/mma_ggml_part.h"
#include "backend/gpu/kernels/matmul/mma_multiply.h"
#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_stages.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A lane's part of a block: 16 columns of two rows, 8 apart, and the scales of all 64.
struct GgmlLane {
  W2 codes[4];
  GgmlScale above[4];
  GgmlScale below[4];
  u32 groups;  // of columns with a scale each: 2 or 4

  template <class Type>
  MF_FN_MEMBER void load(MF_T t, u32 above_at, u32 below_at, u32 block) {
    const u32 part = t.lane & 3u;
    MF_UNROLL
    for (u32 r = 0u; r < 2u; ++r) {
      const u32 at = r == 0u ? above_at : below_at;
      const W4 octets =
          ggml_octets<Type>(Type::low(t, at, block, Type::low_piece(part)),
                            Type::high(t, at, block, Type::high_piece(part)), block, part);
      const W2 first = {{octets.v[0], octets.v[2]}};
      const W2 second = {{octets.v[1], octets.v[3]}};
      codes[r * 2u] = first;
      codes[r * 2u + 1u] = second;
    }
    Type::scales(t, above_at, block, above);
    Type::scales(t, below_at, block, below);
    groups = Type::kScales;
  }
  MF_FN_MEMBER void load_any(MF_T t, u32 type, u32 above_at, u32 below_at, u32 block) {
#define MF_GGML_CASE(name) \
  if (type == kGgml_##name) load<GgmlCodes<kGgml_##name>>(t, above_at, below_at, block);
    MF_GGML_MMA_TYPES(MF_GGML_CASE)
#undef MF_GGML_CASE
  }
  /// A choice, not an index: registers have none.
  static MF_FN_MEMBER GgmlScale choose(MF_LOCAL(const GgmlScale) scales, u32 g) {
    GgmlScale own = scales[0];
    MF_UNROLL
    for (u32 i = 1u; i < 4u; ++i) {
      if (i == g) own = scales[i];
    }
    return own;
  }
};

/// 16 rows of a matrix times TILES * 8 rows of x; lanes have sums as in MmaSums.
template <u32 TILES>
struct GgmlSums {
  enum : u32 { kOwn = TILES * 4u, kParts = TILES > 4u ? 2u : 1u, kTiles = TILES / kParts };
  f32 v[kOwn];

  MF_FN_MEMBER f32 at(u32 o, u32 n, u32 j) const { return v[n * 4u + o * 2u + j]; }

  MF_FN_MEMBER void multiply(MF_T t, MmaMany p, MF_LOCAL(const MmaRows) rows) {
    const u32 blocks = p.cols / kMmaBlock;
    const u32 step = kMmaHalfRows + (rows[1].row - rows[0].row);
    const u32 tile = rows[0].row / step;
    const GgmlRows matrix = {p.m,          p.cols,       step,        rows[0].data,
                             rows[1].data, rows[0].skew, rows[1].skew};
    const u32 places = kMmaStagesBegin + p.stages * kMmaStageWords + t.simd * 2u * p.place_words;
    MF_UNROLL
    for (u32 i = 0u; i < kOwn; ++i) v[i] = 0.0f;
    MmaStages<8u, TILES> copies;
    copies.begin(t, p.cols, rows, p.m.rows, p.stages);
    matrix.issue(t, places, tile, 0u);
    MF_ROLLED
    for (u32 s = 1u; s < p.stages; ++s) copies.issue_tokens(t, p);
    u32 stage = kMmaStagesBegin;
    u32 place = places;
    MF_ROLLED
    for (u32 first = 0u; first < blocks; first += kMmaSplitBlocks) {
      f32 totals[kOwn];
      MF_UNROLL
      for (u32 i = 0u; i < kOwn; ++i) totals[i] = 0.0f;
      const bool is_last = blocks - first <= kMmaSplitBlocks;
      const u32 count = is_last ? blocks - first : static_cast<u32>(kMmaSplitBlocks);
      const u32 next = place == places ? places + p.place_words : places;
      MF_ROLLED
      for (u32 block = 0u; block < count; ++block) {
        MmaSums<8u, TILES>::wait(t, p.stages);
        // With the batch of the next tokens, which has arrived before it is needed.
        if (block == 0u && !is_last) matrix.issue(t, next, tile, first / kMmaSplitBlocks + 1u);
        copies.issue_tokens(t, p);
        add_block(t, totals, p.m.bits, place, stage, block);
        stage = copies.after(stage);
      }
      place = next;
      MF_UNROLL
      for (u32 i = 0u; i < kOwn; ++i) v[i] = v[i] + totals[i];
    }
  }

  /// Codes of one scale at a time: those of other columns are zeros.
  static MF_FN_MEMBER void add_block(MF_T t, MF_LOCAL(f32) totals, u32 type, u32 place, u32 stage,
                                     u32 block) {
    MF_SHARED(u32) head = MF_SHARED_AT(t, u32, place * 4u);
    GgmlLane lane;
    lane.load_any(t, type, head[t.lane / 4u], head[t.lane / 4u + kMmaHalfRows], block);
    MF_SHARED(f32) sums = MF_SHARED_AT(t, f32, (stage + mma_place(t).sums) * 4u);
    MF_UNROLL
    for (u32 part = 0u; part < kParts; ++part) {
      MF_SHARED(u32)
      x = MF_SHARED_AT(t, u32, (stage + part * (kTiles * 8u) * kMmaBlockWords) * 4u);
      f32 products[kTiles * 4u];
      MF_UNROLL
      for (u32 i = 0u; i < kTiles * 4u; ++i) products[i] = 0.0f;
      MF_ROLLED
      for (u32 g = 0u; g < lane.groups; ++g) add_group(t, products, &lane, g, x);
      MF_UNROLL
      for (u32 i = 0u; i < kTiles; ++i) {
        const u32 n = part * kTiles + i;
        const F4 two = load4(sums + n * 16u);  // sum and factor of two tokens
        MF_UNROLL
        for (u32 j = 0u; j < 4u; ++j) {
          totals[n * 4u + j] =
              mf_fma(two.v[j % 2u * 2u + 1u], products[i * 4u + j], totals[n * 4u + j]);
        }
      }
    }
  }
  static MF_FN_MEMBER void add_group(MF_T t, MF_LOCAL(f32) products, MF_LOCAL(const GgmlLane) lane,
                                     u32 g, MF_SHARED(u32) x) {
    const u32 mask = (t.lane & 3u) * lane->groups / 4u == g ? ~0u : 0u;
    W2 codes[4];
    W2 ones[4];
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      MF_UNROLL
      for (u32 h = 0u; h < 2u; ++h) {
        codes[i].v[h] = lane->codes[i].v[h] & mask;
        ones[i].v[h] = 0x01010101u & mask;
      }
    }
    i32 high[kTiles * 4u];
    i32 low[kTiles * 4u];
    i32 all_high[kTiles * 4u];
    i32 all_low[kTiles * 4u];
    TeamBytes<kTiles>::multiply(t, all_high, all_low, ones, x);
    TeamBytes<kTiles>::multiply(t, high, low, codes, x);
    const GgmlScale scales[2] = {GgmlLane::choose(lane->above, g),
                                 GgmlLane::choose(lane->below, g)};
    MF_UNROLL
    for (u32 i = 0u; i < kTiles * 4u; ++i) {
      const f32 sum = static_cast<f32>(all_high[i] * 256 + all_low[i]);
      products[i] = add_ggml_group(products[i], high[i], low[i], scales[i % 4u / 2u], sum);
    }
  }
};

template <u32 TILES, class Output>
MF_FN void ggml_multiply_tiles(MF_T t, MmaMany p, MF_LOCAL(const MmaRows) rows,
                               MF_LOCAL(const Output) output) {
  GgmlSums<TILES> sums;
  sums.multiply(t, p, rows);
  output->template store<TILES>(t, &sums);
}

/// mma_multiply() of either.
template <u32 BITS>
struct MmaTokens {
  template <class Output>
  static MF_FN_MEMBER void multiply(MF_T t, MmaMany p, MF_LOCAL(const MmaRows) rows, u32 tokens,
                                    MF_LOCAL(const Output) output) {
    mma_multiply(t, p, rows, tokens, output);
  }
  static MF_FN_MEMBER MmaRows rows(MF_T t, u64 data, u64 scales, u64 biases, u32 row) {
    const MmaRows own = {MF_AT(t, const u8, data), MF_AT(t, const u8, scales),
                         MF_AT(t, const u8, biases), row, 0u};
    return own;
  }
};
template <>
struct MmaTokens<kMmaGgml> {
  template <class Output>
  static MF_FN_MEMBER void multiply(MF_T t, MmaMany p, MF_LOCAL(const MmaRows) rows, u32 tokens,
                                    MF_LOCAL(const Output) output) {
    if (tokens > 32u) {
      ggml_multiply_tiles<8u>(t, p, rows, output);
    } else {
      ggml_multiply_tiles<4u>(t, p, rows, output);
    }
  }
  static MF_FN_MEMBER MmaRows rows(MF_T t, u64 data, u64, u64, u32 row) {
    MF_GLOBAL(const u8) codes = MF_AT(t, const u8, data);
    const MmaRows own = {codes, codes, codes, row, static_cast<u32>(data) % 32u};
    return own;
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
