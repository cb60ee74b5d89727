// Products on matrix units for many tokens: a SIMD group has 16 rows of a matrix times up to 64
// tokens, column block after column block; while the units multiply for four of them, others add up
// floats.
#pragma once

#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_product.h"
#include "backend/gpu/kernels/matmul/mma_stages.h"
#include "backend/gpu/kernels/matmul/weights.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Where a lane's part of a stage lies, in words of shared memory.
struct MmaPlace {
  u32 sums;
  u32 scales;
};
MF_FN MmaPlace mma_place(MF_T t) {
  MmaPlace place;
  place.sums = kMmaStageSums + (t.lane & 3u) * 4u;
  place.scales = kMmaScalesBegin + t.simd * kMmaManyScaleWords + t.lane / 4u * 2u;
  return place;
}

/// Adds block `within_split` of a split, `within` of a stage, to the totals: 16 rows times TILES *
/// 8 tokens, in parts that leave registers for each other.
template <u32 BITS, u32 TILES>
MF_FN void add_stage_block(MF_T t, MF_LOCAL(f32) totals, MmaPlace place, u32 stage, u32 within,
                           u32 within_split) {
  enum : u32 { kParts = TILES > 4u ? 2u : 1u, kTiles = TILES / kParts };
  MF_SHARED(f32)
  sums = MF_SHARED_AT(t, f32, (stage + place.sums + within * (kMmaTokens * 2u)) * 4u);
  MF_SHARED(u32)
  scales = MF_SHARED_AT(t, u32, (place.scales + within_split * (kMmaRows * 2u)) * 4u);
  W2 codes[4];
  load_stage_codes<BITS>(t, codes, MF_SHARED_AT(t, u32, (stage + kMmaStageCodes) * 4u), within);
  const W2 scale[2] = {load2(scales), load2(scales + kMmaHalfRows * 2u)};  // and bias
  MF_UNROLL
  for (u32 part = 0u; part < kParts; ++part) {
    i32 high[kTiles * 4u];
    i32 low[kTiles * 4u];
    const u32 token = within * kMmaTokens + part * (kTiles * 8u);
    TeamBytes<kTiles>::begin(t, high, low, codes,
                             MF_SHARED_AT(t, u32, (stage + token * kMmaBlockWords) * 4u));
    TeamBytes<kTiles>::template wait<0u>(t, high, low);
    MF_UNROLL
    for (u32 i = 0u; i < kTiles; ++i) {
      const u32 n = part * kTiles + i;
      const F4 two = load4(sums + n * 16u);  // sum and factor of two tokens
      MF_UNROLL
      for (u32 j = 0u; j < 4u; ++j) {
        const W2 own = scale[j / 2u];
        totals[n * 4u + j] =
            add_mma_block(totals[n * 4u + j], high[i * 4u + j], low[i * 4u + j], as_float(own.v[0]),
                          as_float(own.v[1]), two.v[j % 2u * 2u], two.v[j % 2u * 2u + 1u]);
      }
    }
  }
}

/// 16 rows of a matrix times TILES * 8 rows of x. A lane has of 8 tokens two at (lane & 3) * 2, of
/// 8 rows one at lane / 4.
template <u32 BITS, u32 TILES>
struct MmaSums {
  enum : u32 { kOwn = TILES * 4u, kNumbers = kMmaTokens };
  f32 v[kOwn];

  /// The sum of half `o` of the rows, 8 tokens `n`, the lane's token `j`.
  MF_FN_MEMBER f32 at(u32 o, u32 n, u32 j) const { return v[n * 4u + o * 2u + j]; }

  MF_FN_MEMBER void multiply(MF_T t, MmaMany p, MF_LOCAL(const MmaRows) rows) {
    const u32 blocks = p.cols / kMmaBlock;
    MF_UNROLL
    for (u32 i = 0u; i < kOwn; ++i) v[i] = 0.0f;
    MmaStages<BITS, TILES> copies;
    copies.begin(t, p.cols, rows, p.m.rows, p.stages);
    MF_ROLLED
    for (u32 s = 1u; s < p.stages; ++s) copies.issue(t, p, rows);
    MmaScales scales;
    scales.load(t, p.m, rows, p.cols, 0u);
    const MmaPlace place = mma_place(t);
    u32 stage = kMmaStagesBegin;
    MF_ROLLED
    for (u32 first = 0u; first < blocks; first += kMmaSplitBlocks) {
      f32 totals[kOwn];
      MF_UNROLL
      for (u32 i = 0u; i < kOwn; ++i) totals[i] = 0.0f;
      scales.place(t, p.m.scales);
      const bool is_last = blocks - first <= kMmaSplitBlocks;
      if (!is_last) scales.load(t, p.m, rows, p.cols, first + kMmaSplitBlocks);
      const u32 count = is_last ? blocks - first : static_cast<u32>(kMmaSplitBlocks);
      MF_ROLLED
      for (u32 block = 0u; block < count; block += MmaStages<BITS, TILES>::kBlocks) {
        wait(t, p.stages);
        copies.issue(t, p, rows);
        add_stage_block<BITS, TILES>(t, totals, place, stage, 0u, block);
        if (BITS == 4u && block + 1u < count) {
          add_stage_block<BITS, TILES>(t, totals, place, stage, 1u, block + 1u);
        }
        stage = copies.after(stage);
      }
      MF_UNROLL
      for (u32 i = 0u; i < kOwn; ++i) v[i] = v[i] + totals[i];
    }
  }

  /// For the stage that was copied first.
  static MF_FN_MEMBER void wait(MF_T t, u32 stages) {
    if (stages == kMmaStages) {
      copies_wait<kMmaStages - 2u>(t);
    } else {
      copies_wait<kMmaStagesOfFew - 2u>(t);
    }
    copies_publish(t);
    barrier(t);
  }
};

template <u32 BITS, u32 TILES, class Output>
MF_FN void mma_multiply_tiles(MF_T t, MmaMany p, MF_LOCAL(const MmaRows) rows,
                              MF_LOCAL(const Output) output) {
  MmaSums<BITS, TILES> sums;
  sums.multiply(t, p, rows);
  output->template store<TILES>(t, &sums);
}
/// Products with up to `tokens` rows of x, whose numbers are in shared memory.
template <class Output>
MF_FN void mma_multiply(MF_T t, MmaMany p, MF_LOCAL(const MmaRows) rows, u32 tokens,
                        MF_LOCAL(const Output) output) {
  if (p.m.bits == 4u && tokens > 48u) {
    mma_multiply_tiles<4u, 8u>(t, p, rows, output);
  } else if (p.m.bits == 4u && tokens > 32u) {
    mma_multiply_tiles<4u, 6u>(t, p, rows, output);
  } else if (p.m.bits == 4u && tokens > 16u) {
    mma_multiply_tiles<4u, 4u>(t, p, rows, output);
  } else if (p.m.bits == 4u) {
    mma_multiply_tiles<4u, 2u>(t, p, rows, output);
  } else if (tokens > 32u) {
    mma_multiply_tiles<8u, 8u>(t, p, rows, output);
  } else {
    mma_multiply_tiles<8u, 4u>(t, p, rows, output);
  }
}

/// Products as they are, in row numbers[token] of `out`, and a bias of the row if there is one.
struct MmaOutput {
  MF_GLOBAL(f32) out;
  u64 stride;
  u32 row;
  u32 rows;
  u32 tokens;
  u64 biases;
  u32 bias_format;

  template <u32 TILES, class Sums>
  MF_FN_MEMBER void store(MF_T t, MF_LOCAL(const Sums) sums) const {
    MF_SHARED(u32) numbers = MF_SHARED_AT(t, u32, Sums::kNumbers * 4u) + (t.lane & 3u) * 2u;
    const u32 own = row + t.lane / 4u;
    f32 bias[2];
    MF_UNROLL
    for (u32 r = 0u; r < 2u; ++r) {
      bias[r] = own + r * 8u < rows ? bias_at(t, biases, own + r * 8u, bias_format) : 0.0f;
    }
    MF_UNROLL
    for (u32 n = 0u; n < TILES; ++n) {
      MF_UNROLL
      for (u32 j = 0u; j < 2u; ++j) {
        if (n * 8u + (t.lane & 3u) * 2u + j >= tokens) continue;
        MF_GLOBAL(f32) to = out + (numbers[n * 8u + j] * stride + own);
        MF_UNROLL
        for (u32 r = 0u; r < 2u; ++r) {
          if (own + r * 8u < rows) to[r * 8u] = sums->at(r, n, j) + bias[r];
        }
      }
    }
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
