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

/// A lane's part of a block, of two rows, 8 apart: 8 columns of each half, and the scales of
/// all 64.
struct GgmlLane {
  W2 codes[4];  // of the halves of the upper row, then of the lower one
  GgmlScale above[4];
  GgmlScale below[4];
  u32 groups;  // of columns with a scale each: 1, 2 or 4

  /// Four lanes have 16 columns each, as they lie. The units want 8 of each half in every lane.
  static MF_FN_MEMBER void spread(MF_T t, MF_LOCAL(W2) halves, W4 octets) {
    const u32 part = t.lane & 3u;
    MF_UNROLL
    for (u32 h = 0u; h < 2u; ++h) {
      const u32 from = (t.lane & 28u) + h * 2u + part / 2u;
      u32 words[4];
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) words[i] = simd_shuffle(t, octets.v[i], from);
      halves[h].v[0] = part % 2u == 0u ? words[0] : words[1];
      halves[h].v[1] = part % 2u == 0u ? words[2] : words[3];
    }
  }
  template <class Type>
  MF_FN_MEMBER void load(MF_T t, u32 above_at, u32 below_at, u32 block) {
    const u32 part = t.lane & 3u;
    MF_UNROLL
    for (u32 r = 0u; r < 2u; ++r) {
      const u32 at = r == 0u ? above_at : below_at;
      spread(t, codes + r * 2u,
             ggml_octets<Type>(Type::low(t, at, block, Type::low_piece(part)),
                               Type::high(t, at, block, Type::high_piece(part)), block, part));
    }
    Type::scales(t, above_at, block, above);
    Type::scales(t, below_at, block, below);
    groups = Type::kScales;
  }
  /// `wide`: rows begin at multiples of 16 bytes.
  MF_FN_MEMBER void load_any(MF_T t, u32 type, bool wide, u32 above_at, u32 below_at, u32 block) {
    if (wide && type == kGgml_q4_k) return load<GgmlWideQ4K>(t, above_at, below_at, block);
    if (wide && type == kGgml_q5_k) return load<GgmlQ5K<true>>(t, above_at, below_at, block);
    switch (type) {
#define MF_GGML_CASE(name) \
  case kGgml_##name:       \
    return load<GgmlCodes<kGgml_##name>>(t, above_at, below_at, block);
      MF_GGML_MMA_TYPES(MF_GGML_CASE)
#undef MF_GGML_CASE
    }
  }
  /// Codes of group `g` of four in its half: those of the half's other group are zeros.
  MF_FN_MEMBER W2 of_quarter(MF_T t, u32 row, u32 g) const {
    const u32 mask = (t.lane & 3u) / 2u == g % 2u ? ~0u : 0u;
    const W2 first = codes[row * 2u];
    const W2 second = codes[row * 2u + 1u];
    const W2 own = {
        {(g < 2u ? first.v[0] : second.v[0]) & mask, (g < 2u ? first.v[1] : second.v[1]) & mask}};
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
        add_block(t, totals, p.m.bits, matrix.has_wide_rows(), place, stage, block);
        stage = copies.after(stage);
      }
      place = next;
      MF_UNROLL
      for (u32 i = 0u; i < kOwn; ++i) v[i] = v[i] + totals[i];
    }
  }

  static MF_FN_MEMBER void add_block(MF_T t, MF_LOCAL(f32) totals, u32 type, bool wide, u32 place,
                                     u32 stage, u32 block) {
    MF_SHARED(u32) head = MF_SHARED_AT(t, u32, place * 4u);
    GgmlLane lane;
    lane.load_any(t, type, wide, head[t.lane / 4u], head[t.lane / 4u + kMmaHalfRows], block);
    if (lane.groups == 2u) {
      add_parts<2u>(t, totals, &lane, stage);
    } else if (lane.groups == 4u) {
      add_parts<4u>(t, totals, &lane, stage);
    } else {
      add_parts<1u>(t, totals, &lane, stage);
    }
  }
  template <u32 GROUPS>
  static MF_FN_MEMBER void add_parts(MF_T t, MF_LOCAL(f32) totals, MF_LOCAL(const GgmlLane) lane,
                                     u32 stage) {
    // These are of the lane's two tokens of the first 8.
    MF_SHARED(f32)
    sums = MF_SHARED_AT(t, f32, (stage + kMmaStageCodes + (t.lane & 3u) * 2u * kGgmlSumWords) * 4u);
    MF_UNROLL
    for (u32 part = 0u; part < kParts; ++part) {
      const u32 token = part * (kTiles * 8u);
      f32 products[kTiles * 4u];
      MF_UNROLL
      for (u32 i = 0u; i < kTiles * 4u; ++i) products[i] = 0.0f;
      MF_UNROLL
      for (u32 g = 0u; g < GROUPS; g += 2u) {
        add_groups<GROUPS>(t, products, lane, g,
                           MF_SHARED_AT(t, u32, (stage + token * kMmaBlockWords) * 4u),
                           sums + token * kGgmlSumWords);
      }
      add_products(totals + part * (kTiles * 4u), products, sums + token * kGgmlSumWords);
    }
  }
  static MF_FN_MEMBER void add_products(MF_LOCAL(f32) totals, MF_LOCAL(const f32) products,
                                        MF_SHARED(f32) sums) {
    MF_UNROLL
    for (u32 i = 0u; i < kTiles; ++i) {
      MF_UNROLL
      for (u32 q = 0u; q < 4u; ++q) {
        const f32 factor = sums[(i * 8u + q % 2u) * kGgmlSumWords + kGgmlSumFactor];
        totals[i * 4u + q] = mf_fma(factor, products[i * 4u + q], totals[i * 4u + q]);
      }
    }
  }
  /// Groups `first` and the next one of all 64 columns; or both halves, whose scale is the same.
  template <u32 GROUPS>
  static MF_FN_MEMBER void add_groups(MF_T t, MF_LOCAL(f32) products, MF_LOCAL(const GgmlLane) lane,
                                      u32 first, MF_SHARED(u32) x, MF_SHARED(f32) sums) {
    i32 high[2u * kTiles * 4u];
    i32 low[2u * kTiles * 4u];
    W2 codes[4];
    u32 halves[2];
    MF_UNROLL
    for (u32 e = 0u; e < 2u; ++e) {
      halves[e] = GROUPS <= 2u ? e : first / 2u;
      MF_UNROLL
      for (u32 r = 0u; r < 2u; ++r) {
        codes[e * 2u + r] =
            GROUPS <= 2u ? lane->codes[r * 2u + e] : lane->of_quarter(t, r, first + e);
      }
    }
    TeamBytes<kTiles>::multiply_halves(t, high, low, codes, halves, x);
    MF_UNROLL
    for (u32 i = 0u; i < kTiles; ++i) {
      MF_UNROLL
      for (u32 j = 0u; j < 2u; ++j) {
        MF_SHARED(f32)
        own =
            sums + ((i * 8u + j) * kGgmlSumWords + (GROUPS <= 2u ? 0u : kGgmlSumQuarters + first));
        if (GROUPS == 1u) {
          MF_UNROLL
          for (u32 r = 0u; r < 2u; ++r) {
            const u32 q = r * 2u + j;
            const u32 at = i * 4u + q;
            const u32 other = at + kTiles * 4u;
            products[at] =
                add_ggml_group(products[at], high[at] + high[other], low[at] + low[other],
                               r == 0u ? lane->above[0] : lane->below[0], own[0] + own[1]);
          }
          continue;
        }
        MF_UNROLL
        for (u32 e = 0u; e < 2u; ++e) {
          const f32 sum = own[e];
          MF_UNROLL
          for (u32 r = 0u; r < 2u; ++r) {
            const u32 q = r * 2u + j;
            const u32 at = (e * kTiles + i) * 4u + q;
            const GgmlScale scale = r == 0u ? lane->above[first + e] : lane->below[first + e];
            products[i * 4u + q] =
                add_ggml_group(products[i * 4u + q], high[at], low[at], scale, sum);
          }
        }
      }
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
